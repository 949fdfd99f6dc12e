import { type ChildProcess, spawn } from 'node:child_process';
import { prepareExec, type RunningContainer, type RuntimePaths } from './oci-runtime.ts';
import type { RemoteCommand } from './streams/remote-command.ts';
import { spawnInTerminal } from './terminal.ts';

/** Runs a command in a container with a remote client's streams; resolves when it is over and the client knows how. */
export async function runExecSession(
  paths: RuntimePaths,
  container: RunningContainer,
  command: readonly string[],
  tty: boolean,
  remote: RemoteCommand,
): Promise<void> {
  const { args, remove } = prepareExec(paths, container, command, tty);
  try {
    const code = await (tty ? withTerminal : withPipes)(paths.program, args, remote);
    await remote.finish({ code });
  } finally {
    remove();
  }
}

async function withPipes(program: string, args: readonly string[], remote: RemoteCommand): Promise<number> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
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
  program: string,
  args: readonly string[],
  remote: RemoteCommand,
): Promise<number> {
  const sizes = remote.resizes[Symbol.asyncIterator]();
  const { child, stream, resize } = spawnInTerminal(program, args);
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

/** Resolves when the process has ended and its output is read. Shells' way of telling signals: 128 and the number. */
function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 137));
  });
}
