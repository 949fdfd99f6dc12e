import { libc, systemError } from './libc.ts';
import { SOL_SOCKET } from './socket-numbers.ts';

const SO_MARK = 36;
/** Reused: each connection of a proxy marks a socket. */
const value = new Uint8Array(new ArrayBuffer(4));
const view = new DataView(value.buffer);

/** Sets the mark of packets that a socket sends. Throws SystemError. */
export function setSocketMark(fd: number, mark: number): void {
  view.setUint32(0, mark, true);
  if (libc().setsockopt(fd, SOL_SOCKET, SO_MARK, value, value.length) !== 0)
    throw systemError('mark socket', undefined, 'marking needs CAP_NET_ADMIN');
}
