import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { libc, type Poll, systemError } from '../kernel/libc.ts';
import { SOCK_CLOEXEC } from '../kernel/socket-numbers.ts';
import { hasCode } from '../lib/errors.ts';
import type { RemoteCommand } from './streams/remote-command.ts';

// bits/socket.h, asm-generic/fcntl.h
const AF_UNIX = 1;
const SOCK_SEQPACKET = 5;
const SOCK_NONBLOCK = 0o4000;
const MSG_NOSIGNAL = 0x4000;
/** conmon's buffer (8 KiB) and the preceding byte that names the stream. */
const PACKET_BYTES = 8192 + 1;
const STDOUT = 2;
const STDERR = 3;
const RETRY_MS = 10;

/**
 * Joins a remote client's streams with those of a container's first process, through its conmon's attach socket: a
 * SOCK_SEQPACKET socket, which Node.js does not support. Resolves when the container or the client has gone.
 */
export async function runAttachSession(
  container: { readonly bundle: string; readonly tty: boolean },
  remote: RemoteCommand,
  ended: () => Promise<number | null>,
): Promise<void> {
  const fd = connectAttach(container.bundle);
  const gone = Promise.withResolvers<void>();
  const buffer = new Uint8Array(PACKET_BYTES);
  let poll: Poll | null = null;
  let isOver = false;
  const read = () => {
    for (;;) {
      const count = libc().recv(fd, buffer, buffer.length, 0);
      if (count > 0) {
        const data = Buffer.from(buffer.subarray(1, count));
        const output = buffer[0] === STDOUT ? remote.stdout : buffer[0] === STDERR ? remote.stderr : null;
        if (!output || output.write(data)) continue;
        // A client that does not read: the rest waits in the socket.
        poll?.close();
        poll = null;
        output.once('drain', resume);
        return;
      }
      if (count === 0 || systemError('read').code !== 'EAGAIN') gone.resolve();
      return;
    }
  };
  const resume = () => {
    if (!isOver) poll = libc().poll(fd, read);
  };
  resume();
  const input = async () => {
    for await (const chunk of remote.stdin) {
      for (let at = 0; at < chunk.length; at += PACKET_BYTES - 1) {
        await sendPacket(fd, chunk.subarray(at, at + PACKET_BYTES - 1), remote.closed);
      }
    }
  };
  const sizes = async () => {
    for await (const { width, height } of remote.resizes) {
      // conmon(8): message 1 on its control pipe sets the terminal's size.
      if (container.tty) controlConmon(container.bundle, `1 ${height} ${width}\n`);
    }
  };
  // A disconnected client is reported by `closed`.
  input().catch(() => {});
  sizes().catch(() => {});
  remote.closed.addEventListener('abort', () => gone.resolve());
  await gone.promise;
  isOver = true;
  // Closed by another step of this function, which the compiler does not see.
  (poll as Poll | null)?.close();
  closeSync(fd);
  if (remote.closed.aborted) return;
  await remote.finish({ code: (await ended()) ?? 0 });
}

function connectAttach(folder: string): number {
  const fd = libc().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw systemError('open socket');
  // A socket's path has at most 107 bytes: named through a descriptor of its folder.
  const directory = openSync(folder, constants.O_DIRECTORY);
  try {
    const address = new Uint8Array(110);
    new DataView(address.buffer).setUint16(0, AF_UNIX, true);
    address.set(Buffer.from(`/proc/self/fd/${directory}/attach`), 2);
    if (libc().connect(fd, address, address.length) !== 0) {
      const error = systemError('attach to', join(folder, 'attach'), 'the container has ended');
      closeSync(fd);
      throw error;
    }
  } finally {
    closeSync(directory);
  }
  return fd;
}

async function sendPacket(fd: number, data: Uint8Array, closed: AbortSignal): Promise<void> {
  while (!closed.aborted && libc().send(fd, data, data.length, MSG_NOSIGNAL) < 0) {
    const error = systemError('send');
    if (error.code !== 'EAGAIN') throw error;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function controlConmon(bundle: string, message: string): void {
  try {
    const pipe = openSync(join(bundle, 'ctl'), constants.O_WRONLY | constants.O_NONBLOCK);
    writeSync(pipe, message);
    closeSync(pipe);
  } catch (error) {
    // conmon no longer reads: the container has ended.
    if (!hasCode(error, 'ENOENT', 'ENXIO')) throw error;
  }
}
