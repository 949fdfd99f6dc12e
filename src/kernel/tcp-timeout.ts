import type { Socket } from 'node:net';
import { systemError } from './libc.ts';
import { setSocketOption } from './socket-option.ts';

// linux/tcp.h
const IPPROTO_TCP = 6;
const TCP_USER_TIMEOUT = 18;

/**
 * Limits the time for which the peer's kernel may leave data and keep-alive probes of a connected TCP socket without an
 * acknowledgement; then the connection ends with ETIMEDOUT. A peer whose process is slow or stopped acknowledges what fits
 * into its receive buffer, and is not affected. Throws FairleadError.
 */
export function limitUnacknowledged(socket: Socket, ms: number): void {
  // Node.js has no other way to the descriptor; that of a TLS socket is that of its connection.
  const fd = (socket as Socket & { readonly _handle?: { readonly fd?: number } | null })._handle?.fd;
  // It is closed already.
  if (fd === undefined || fd < 0) return;
  if (!setSocketOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms))
    throw systemError('limit the time without acknowledgement of a connection');
}
