import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync, readdirSync, readlinkSync, writeSync } from 'node:fs';
import { type Readable, Writable } from 'node:stream';
import { ReadStream } from 'node:tty';
import { libc, systemError } from '../kernel/libc.ts';
import { hasCode } from '../lib/errors.ts';
import type { TerminalSize } from './streams/remote-command.ts';

// asm-generic/ioctls.h
const TIOCSPTLCK = 0x40045431;
const TIOCGPTN = 0x80045430;
const TIOCSWINSZ = 0x5414;

/** A program with its own terminal; this process has the other end. */
export interface TerminalProcess {
  readonly child: ChildProcess;
  /** Waits while the program does not read. */
  readonly input: Writable;
  /** Ends with the program; destroying it closes the terminal. */
  readonly output: Readable;
  resize(size: TerminalSize): void;
}

/** How long a full terminal is left before the next attempt. */
const RETRY_MS = 20;

/**
 * Starts a program as leader of a session with a new pseudo-terminal (pty(7)) as its controlling terminal. `size`: the
 * initial size. The program's standard error is a pipe.
 */
export function spawnInTerminal(
  file: string,
  args: readonly string[],
  size: TerminalSize | null,
): TerminalProcess {
  const flags = constants.O_RDWR | constants.O_NOCTTY;
  const master = openSync('/dev/ptmx', flags | constants.O_NONBLOCK);
  const number = new Uint8Array(4);
  if (libc().ioctl(master, TIOCSPTLCK, new Uint8Array(4)) !== 0) throw systemError('unlock terminal');
  if (libc().ioctl(master, TIOCGPTN, number) !== 0) throw systemError('number terminal');
  const slave = openSync(`/dev/pts/${new DataView(number.buffer).getUint32(0, true)}`, flags);
  if (size) setSize(master, size);
  // Node.js can start a session (detached) but not set its controlling terminal: setsid(1) does.
  const child = spawn('setsid', ['--ctty', '--wait', file, ...args], { stdio: [slave, slave, 'pipe'] });
  closeSync(slave);
  const output = new ReadStream(master);
  output.on('error', (error) => {
    // EIO reports the last close of the program's side.
    if (hasCode(error, 'EIO')) output.push(null);
  });
  return {
    child,
    input: inputOf(master, output),
    output,
    resize(next) {
      if (output.destroyed) return;
      setSize(master, next);
      if (child.pid !== undefined) setInnerSizes(child.pid, next);
    },
  };
}

function setSize(terminal: number, { width, height }: TerminalSize): void {
  const bytes = new Uint8Array(8);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, height, true);
  view.setUint16(2, width, true);
  libc().ioctl(terminal, TIOCSWINSZ, bytes);
}

/**
 * Sets the size of the terminals that a program has opened for others: crun connects its own terminal with one in the
 * container, and crun 1.8 does not copy later sizes. Kernels before Linux 5.6 leave them as they are.
 */
function setInnerSizes(pid: number, size: TerminalSize): void {
  const program = libc().pidfd_open(pid);
  if (program < 0) return;
  try {
    for (const fd of readdirSync(`/proc/${pid}/fd`)) {
      if (!/\/ptmx$/.test(readlinkSync(`/proc/${pid}/fd/${fd}`))) continue;
      const terminal = libc().pidfd_getfd(program, Number(fd));
      if (terminal < 0) continue;
      setSize(terminal, size);
      closeSync(terminal);
    }
  } catch (error) {
    // The program has ended meanwhile.
    if (!hasCode(error, 'ENOENT', 'ESRCH')) throw error;
  } finally {
    closeSync(program);
  }
}

/**
 * Returns a terminal's input. Node.js's own would block the whole process while the terminal is full, because libuv cannot
 * open this side of a terminal a second time (uv_tty_init).
 */
function inputOf(master: number, output: Readable): Writable {
  const writeAll = (chunk: Uint8Array, callback: (error?: Error | null) => void): void => {
    let at = 0;
    try {
      while (at < chunk.length && !output.destroyed) at += writeSync(master, chunk, at);
    } catch (error) {
      if (hasCode(error, 'EAGAIN')) {
        setTimeout(() => writeAll(chunk.subarray(at), callback), RETRY_MS);
        return;
      }
      // The program has ended, which the output reports.
      if (!hasCode(error, 'EIO')) {
        callback(error as Error);
        return;
      }
    }
    callback();
  };
  const input = new Writable({ write: (chunk: Buffer, _encoding, callback) => writeAll(chunk, callback) });
  return input.on('error', () => output.destroy());
}
