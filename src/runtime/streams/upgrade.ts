import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { FairleadError } from '../../lib/errors.ts';

/** Returns true if the client requests a WebSocket, false for SPDY. Answers other requests, and throws. */
export function wantsWebSocket(request: IncomingMessage, socket: Duplex): boolean {
  const upgrade = (request.headers.upgrade ?? '').toLowerCase();
  if (upgrade === 'websocket') return true;
  if (upgrade === 'spdy/3.1') return false;
  throw refuse(socket, 400, `unable to upgrade: "${upgrade}" is not supported, use websocket or SPDY/3.1`);
}

/** Refuses a client's request, and returns the error to throw. */
export function refuse(socket: Duplex, status: number, message: string): FairleadError {
  const reason = status === 403 ? 'Forbidden' : 'Bad Request';
  socket.on('error', () => socket.destroy());
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\ncontent-type: text/plain\r\ncontent-length: ${Buffer.byteLength(message)}\r\nconnection: close\r\n\r\n${message}`,
  );
  return new FairleadError(message, { op: 'upgrade a connection', code: 'bad-upgrade' });
}

/** Returns the values of a list header, in the client's order. */
export function listed(request: IncomingMessage, name: string): string[] {
  const value = request.headers[name];
  const text = Array.isArray(value) ? value.join(',') : (value ?? '');
  return text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
}

/** Returns the client's first choice among the supported protocols; "" if it names none and `bare` is allowed. */
export function choose(offered: readonly string[], spoken: readonly string[], bare: boolean): string | null {
  if (offered.length === 0) return bare ? '' : null;
  return offered.find((protocol) => spoken.includes(protocol)) ?? null;
}

/** Answers a WebSocket upgrade with the chosen subprotocol ("" for none). */
export function openWebSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  subprotocol: string,
): Promise<WebSocket> {
  // The name of the tunnel protocol contains a slash, which RFC 6455 forbids and `ws` refuses: `ws` must not see it.
  delete request.headers['sec-websocket-protocol'];
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    // See answerPings.
    autoPong: false,
    maxPayload: 32 * 1024 * 1024,
  });
  if (subprotocol !== '') {
    server.on('headers', (headers) => headers.push(`Sec-WebSocket-Protocol: ${subprotocol}`));
  }
  return new Promise((resolve, reject) => {
    server.on('wsClientError', (error) =>
      reject(
        new FairleadError(error.message, { op: 'upgrade a connection', code: 'bad-upgrade', cause: error }),
      ),
    );
    server.handleUpgrade(request, socket, head, (webSocket) => {
      answerPings(webSocket);
      resolve(webSocket);
    });
  });
}

/** Bytes that wait for a client that does not read; beyond them its pings are not answered (RFC 6455, 5.5.3, allows it). */
const MAX_UNSENT_BYTES = 1 << 20;

function answerPings(webSocket: WebSocket): void {
  webSocket.on('ping', (data) => {
    if (webSocket.readyState === webSocket.OPEN && webSocket.bufferedAmount < MAX_UNSENT_BYTES) {
      webSocket.pong(data);
    }
  });
}

/** Answers a SPDY upgrade. */
export function openSpdy(socket: Duplex, protocol: string): void {
  const version = protocol === '' ? '' : `X-Stream-Protocol-Version: ${protocol}\r\n`;
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n${version}\r\n`,
  );
}
