import { systemError } from './libc.ts';
import { SOL_SOCKET } from './socket-numbers.ts';
import { setSocketOption } from './socket-option.ts';

const SO_MARK = 36;

/** Sets the mark of packets that a socket sends. Throws SystemError. */
export function setSocketMark(fd: number, mark: number): void {
  if (!setSocketOption(fd, SOL_SOCKET, SO_MARK, mark))
    throw systemError('mark socket', undefined, 'marking needs CAP_NET_ADMIN');
}
