import { write, writeSync } from 'node:fs';
import { type Clock, systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';

/** The output of log lines. */
export interface LogOutput {
  write(line: string): void;
  /** Writes pending lines at the end of the process; lines that cannot be written at once are lost. */
  flush(): void;
}

/** The maximum size of pending lines for a slow reader or disk; more are dropped. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
const RETRY_MS = 20;

type Write = (bytes: Buffer, done: (error: Error | null, written: number) => void) => void;

export interface LogOutputOptions {
  readonly write: Write;
  readonly writeSync: (bytes: Buffer) => number;
  readonly clock: Clock;
  readonly maxWaitingBytes?: number;
}

/** Returns the log output of a descriptor. */
export function descriptorOutput(fd: number): LogOutput {
  return createLogOutput({
    write: (bytes, done) => write(fd, bytes, done),
    writeSync: (bytes) => writeSync(fd, bytes),
    clock: systemClock,
  });
}

/**
 * Writes lines in the background, in order. The process continues on a full disk, and when the reader has
 * exited or does not read: lines that cannot be written are dropped and counted, and the count is logged
 * once writing succeeds again.
 */
export function createLogOutput(options: LogOutputOptions): LogOutput {
  const { clock, maxWaitingBytes = MAX_WAITING_BYTES } = options;
  let waiting: string[] = [];
  let waitingBytes = 0;
  let current: Buffer | null = null;
  let lost = 0;
  let cause = '';
  /** A line was truncated: the next one starts on a new line. */
  let isCut = false;

  const take = (): Buffer => {
    const lines = waiting;
    waiting = [];
    waitingBytes = 0;
    if (lost > 0) {
      const message = `${lost} lines of this log were lost: ${cause}`;
      lines.unshift(`${JSON.stringify({ level: 40, time: clock.now(), pid: process.pid, msg: message })}\n`);
      lost = 0;
    }
    if (isCut) lines.unshift('\n');
    isCut = false;
    return Buffer.from(lines.join(''));
  };
  const lose = (lines: number, reason: string) => {
    lost += lines;
    cause = reason;
  };
  const pump = () => {
    if (current || waiting.length === 0) return;
    current = take();
    send(current, current.length);
  };
  const send = (rest: Buffer, whole: number) => {
    options.write(rest, (error, written) => {
      if (current === null) return;
      if (error && 'code' in error && error.code === 'EAGAIN') {
        clock.after(RETRY_MS, () => send(rest, whole));
        return;
      }
      if (error) {
        lose(linesOf(rest), messageOf(error));
        isCut ||= rest.length < whole;
      } else if (written < rest.length) {
        send(rest.subarray(written), whole);
        return;
      }
      current = null;
      pump();
    });
  };
  return {
    write(line) {
      if (waitingBytes > maxWaitingBytes) {
        lose(1, 'they were logged faster than they could be written');
        return;
      }
      waiting.push(line);
      waitingBytes += line.length;
      pump();
    },
    flush() {
      // A write in progress is completed by its thread.
      for (let rest = take(); rest.length > 0; ) {
        try {
          rest = rest.subarray(options.writeSync(rest));
        } catch {
          // The process is ending, and this log is its only output.
          return;
        }
      }
    },
  };
}

function linesOf(bytes: Buffer): number {
  let count = 0;
  for (const byte of bytes) if (byte === 0x0a) count++;
  return count;
}
