import { libc, systemError } from './libc.ts';
import { SOL_SOCKET } from './socket-numbers.ts';

const SO_MARK = 36;

/** Sets the mark of packets that a socket sends. Throws SystemError. */
export function setSocketMark(fd: number, mark: number): void {
  const value = new Uint8Array(Uint32Array.of(mark).buffer);
  if (libc().setsockopt(fd, SOL_SOCKET, SO_MARK, value, value.length) !== 0)
    throw systemError('mark socket', undefined, 'marking needs CAP_NET_ADMIN');
}
