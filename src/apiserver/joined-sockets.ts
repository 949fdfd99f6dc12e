import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';

/** Joins two connections after both protocol upgrades; when one ends, the other ends. */
export function joinSockets(
  socket: Duplex,
  head: Buffer,
  response: IncomingMessage,
  other: Duplex,
  otherHead: Buffer,
): void {
  socket.write(responseHead(response));
  if (otherHead.length > 0) socket.write(otherHead);
  if (head.length > 0) other.write(head);
  other.pipe(socket);
  socket.pipe(other);
  const end = () => {
    other.destroy();
    socket.destroy();
  };
  other.on('error', end).on('close', end);
  socket.on('error', end).on('close', end);
}

function responseHead(response: IncomingMessage): string {
  const lines = [`HTTP/1.1 ${response.statusCode} ${response.statusMessage}`];
  for (let i = 0; i + 1 < response.rawHeaders.length; i += 2) {
    // The forwarded body is decoded, so its framing header is dropped.
    if (/^(transfer-encoding)$/i.test(response.rawHeaders[i] ?? '')) continue;
    lines.push(`${response.rawHeaders[i]}: ${response.rawHeaders[i + 1]}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}
