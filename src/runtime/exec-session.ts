import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execArguments, type RuntimePaths } from './oci-runtime.ts';
import type { RemoteCommand } from './streams/remote-command.ts';
import { spawnInTerminal } from './terminal.ts';

/** Runs a command in a container with a remote client's streams; resolves when it is over and the client knows how. */
export async function runExecSession(
  paths: RuntimePaths,
  container: { readonly id: string; readonly bundle: string },
  command: readonly string[],
  tty: boolean,
  remote: RemoteCommand,
): Promise<void> {
  const code = tty
    ? await withTerminal(paths, container, command, remote)
    : await withPipes(paths, container.id, command, remote);
  await remote.finish({ code });
}

async function withPipes(
  paths: RuntimePaths,
  id: string,
  command: readonly string[],
  remote: RemoteCommand,
): Promise<number> {
  const child = spawn(paths.program, execArguments(paths, id, command), { stdio: ['pipe', 'pipe', 'pipe'] });
  // A command that does not read its input, or has ended, closes it.
  child.stdin.on('error', () => {});
  remote.stdin.on('error', () => child.stdin.end());
  remote.stdin.pipe(child.stdin);
  child.stdout.pipe(remote.stdout, { end: false });
  child.stderr.pipe(remote.stderr, { end: false });
  remote.closed.addEventListener('abort', () => {
    child.stdin.destroy();
    child.stdout.destroy();
    child.stderr.destroy();
  });
  return await exitOf(child);
}

async function withTerminal(
  paths: RuntimePaths,
  container: { readonly id: string; readonly bundle: string },
  command: readonly string[],
  remote: RemoteCommand,
): Promise<number> {
  const sizes = remote.resizes[Symbol.asyncIterator]();
  const { child, stream, resize } = spawnInTerminal(
    paths.program,
    execArguments(paths, container.id, command, ['--tty', ...terminalEnvironment(container.bundle)]),
  );
  const follow = async () => {
    for (let next = await sizes.next(); !next.done; next = await sizes.next()) resize(next.value);
  };
  void follow();
  remote.stdin.on('error', () => {});
  remote.stdin.pipe(stream, { end: false });
  stream.pipe(remote.stdout, { end: false });
  // Hanging up is what a terminal does when its user is gone: SIGHUP goes to what runs in it.
  remote.closed.addEventListener('abort', () => stream.destroy());
  const drained = new Promise<void>((resolve) => {
    stream.on('end', resolve).on('close', resolve);
  });
  const code = await exitOf(child);
  await drained;
  stream.destroy();
  return code;
}

/** The container's own variables and TERM: crun's --env replaces the container's, it does not add to them. */
function terminalEnvironment(bundle: string): string[] {
  const config = JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8')) as {
    process: { env: string[] };
  };
  const { env } = config.process;
  const known = env.some((variable) => variable.startsWith('TERM='));
  return [...env, ...(known ? [] : ['TERM=xterm'])].flatMap((variable) => ['--env', variable]);
}

/** Resolves when the process has ended and its output is read. Shells' way of telling signals: 128 and the number. */
function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 137));
  });
}
