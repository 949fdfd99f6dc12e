import { spawn } from 'node:child_process';
import { FairleadError, messageOf } from '../lib/errors.ts';

/** The output of a command, and its end. */
export interface CommandResult {
  readonly output: string;
  /** It printed more; its end is shown. */
  readonly isCut: boolean;
  /** Null: it was ended, because it took too long. */
  readonly code: number | null;
}

export interface RunOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly folder: string;
  readonly maxBytes: number;
  readonly timeoutMs: number;
  /** Ends the command, and what it has started. */
  readonly signal: AbortSignal;
}

/** How long the output of an ended command is read. */
const LAST_OUTPUT_MS = 500;

/**
 * Runs a command line in a shell as the user of this process, without a terminal and without input. Its processes are a group,
 * which ends with it. Throws FairleadError if the shell cannot be started.
 */
export async function runCommand(line: string, options: RunOptions): Promise<CommandResult> {
  const { environment, folder, maxBytes, timeoutMs, signal } = options;
  const child = spawn('/bin/sh', ['-c', `exec 2>&1\n${line}`], {
    cwd: folder,
    env: { ...environment, TERM: 'dumb', NO_COLOR: '1' },
    // One pipe for both, so that errors are shown where they happened.
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  const chunks: Buffer[] = [];
  let size = 0;
  let isCut = false;
  const keep = (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    while (size - (chunks[0]?.length ?? 0) >= maxBytes) {
      size -= chunks.shift()?.length ?? 0;
      isCut = true;
    }
  };
  child.stdout.on('data', keep);
  const end = () => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
  };
  const timer = setTimeout(end, timeoutMs);
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.on('error', (error) =>
        reject(
          new FairleadError(`no shell can be started: ${messageOf(error)}`, {
            op: 'run a command',
            code: 'ENOENT',
          }),
        ),
      );
      // Processes that it has left in the background keep its pipes open: the end of the shell counts.
      child.on('exit', (status) => resolve(status));
    });
    end();
    await new Promise<void>((resolve) => {
      if (child.stdout.closed) resolve();
      else child.on('close', () => resolve());
      // Processes that have left the group may keep the pipe: their output is not awaited.
      setTimeout(() => child.stdout.destroy(), LAST_OUTPUT_MS).unref();
    });
    const all = Buffer.concat(chunks);
    return {
      output: all.subarray(Math.max(0, all.length - maxBytes)).toString('utf8'),
      isCut: isCut || all.length > maxBytes,
      code,
    };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}
