import { type ChildProcess, spawn } from 'node:child_process';
import { prepareExec, type RunningContainer, type RuntimePaths } from './oci-runtime.ts';
import type { RemoteCommand, TerminalSize } from './streams/remote-command.ts';
import { spawnInTerminal } from './terminal.ts';

/**
 * Runs a command in a container with a remote client's streams; resolves after the client has received the exit status.
 */
export async function runExecSession(
  paths: RuntimePaths,
  container: RunningContainer,
  command: readonly string[],
  tty: boolean,
  remote: RemoteCommand,
): Promise<void> {
  const sizes = remote.resizes[Symbol.asyncIterator]();
  const first = sizes.next();
  const known = tty ? await Promise.race([first, patience()]) : null;
  const size = known && !known.done ? known.value : null;
  const { args, remove } = prepareExec(paths, container, command, tty, size);
  try {
    const later = async function* () {
      for (let next = await first; !next.done; next = await sizes.next()) yield next.value;
    };
    const code = tty
      ? await withTerminal(paths.program, args, remote, size, later())
      : await withPipes(paths.program, args, remote);
    await remote.finish({ code });
  } finally {
    remove();
  }
}

async function withPipes(program: string, args: readonly string[], remote: RemoteCommand): Promise<number> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  // A command may close its input or end.
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

/** The runtime's messages of a command in a terminal. */
const MAX_MESSAGE_LENGTH = 64 * 1024;

async function withTerminal(
  program: string,
  args: readonly string[],
  remote: RemoteCommand,
  size: TerminalSize | null,
  sizes: AsyncIterable<TerminalSize>,
): Promise<number> {
  const { child, input, output, resize } = spawnInTerminal(program, args, size);
  const follow = async () => {
    for await (const next of sizes) resize(next);
  };
  void follow();
  let messages = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    messages = (messages + text).slice(0, MAX_MESSAGE_LENGTH);
  });
  remote.stdin.on('error', () => {});
  remote.stdin.pipe(input, { end: false });
  output.pipe(remote.stdout, { end: false });
  // Like a terminal whose user has disconnected: its processes receive SIGHUP.
  remote.closed.addEventListener('abort', () => output.destroy());
  const drained = new Promise<void>((resolve) => {
    output.on('end', resolve).on('close', resolve);
  });
  const code = await exitOf(child);
  await drained;
  output.destroy();
  const late = withoutTimes(messages);
  if (late !== '') remote.stdout.write(late.endsWith('\n') ? late : `${late}\r\n`);
  return code;
}

const RED = '\u001b[1;31m';
const PLAIN = '\u001b[0m';

/**
 * Extracts the text of crun's messages: errors, and also terminal output of a command that ended before crun read it.
 * crun puts a time before each piece and a red line end after it.
 */
function withoutTimes(messages: string): string {
  return messages
    .replaceAll(RED, '')
    .replaceAll(PLAIN, '')
    .split(/^\d{4}-\d\d-\d\dT[\d:.]+Z: /m)
    .map((piece) => piece.replace(/\n$/, ''))
    .join('');
}

/** Short commands read their terminal's size immediately: the time for the client to send it, if it has a terminal. */
const SIZE_MS = 1000;
const patience = () => new Promise<null>((resolve) => setTimeout(() => resolve(null), SIZE_MS).unref());

/**
 * Resolves when the process has ended and its output is read. Signals are reported as in shells: 128 plus the number.
 */
function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 137));
  });
}
