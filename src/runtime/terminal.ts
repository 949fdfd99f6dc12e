import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import type { Duplex } from 'node:stream';
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
  /** Input and output of the terminal; ends with the program. */
  readonly stream: Duplex;
  resize(size: TerminalSize): void;
}

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
  const master = openSync('/dev/ptmx', flags);
  const number = new Uint8Array(4);
  if (libc().ioctl(master, TIOCSPTLCK, new Uint8Array(4)) !== 0) throw systemError('unlock terminal');
  if (libc().ioctl(master, TIOCGPTN, number) !== 0) throw systemError('number terminal');
  const slave = openSync(`/dev/pts/${new DataView(number.buffer).getUint32(0, true)}`, flags);
  const resize = ({ width, height }: TerminalSize) => {
    const bytes = new Uint8Array(8);
    const view = new DataView(bytes.buffer);
    view.setUint16(0, height, true);
    view.setUint16(2, width, true);
    libc().ioctl(master, TIOCSWINSZ, bytes);
  };
  if (size) resize(size);
  // Node.js can start a session (detached) but not set its controlling terminal: setsid(1) does.
  const child = spawn('setsid', ['--ctty', '--wait', file, ...args], { stdio: [slave, slave, 'pipe'] });
  closeSync(slave);
  const stream = new ReadStream(master);
  stream.on('error', (error) => {
    // EIO reports the last close of the program's side.
    if (hasCode(error, 'EIO')) stream.push(null);
  });
  return {
    child,
    stream,
    resize(next) {
      if (!stream.destroyed) resize(next);
    },
  };
}
