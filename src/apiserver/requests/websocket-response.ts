import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { sendOnSocket } from './http-exchange.ts';
import type { PlainResponse, Upgrade } from './request.ts';

const BASE64 = 'base64.binary.k8s.io';
/** Supported stream protocols; the client's first supported choice is used. None means bytes. */
const PROTOCOLS: readonly string[] = ['binary.k8s.io', BASE64];
/** Maximum size of client messages, which are ignored. */
const MAX_MESSAGE_BYTES = 4096;

/**
 * Reports whether the response is a stream (log, watch) that the client requests over a WebSocket; other responses
 * remain plain HTTP.
 */
export function isStreamOverWebSocket(message: IncomingMessage, outgoing: PlainResponse): boolean {
  const isAsked = (message.headers.upgrade ?? '').toLowerCase() === 'websocket' && message.method === 'GET';
  return isAsked && outgoing.status === 200 && outgoing.body instanceof Readable;
}

/**
 * Answers a WebSocket request with a stream, as upstream's API server does: each event of a watch is a text message;
 * the bytes of a log are binary messages, or base64 in text messages if the client requests `base64.binary.k8s.io`. The
 * connection ends with the stream. Refuses other protocols, and watches in Protobuf.
 */
export function sendOverWebSocket({ message, socket, head }: Upgrade, outgoing: PlainResponse): void {
  const { headers, body } = outgoing;
  if (!(body instanceof Readable)) {
    sendOnSocket(socket, outgoing);
    return;
  }
  const offered = offeredProtocols(message);
  const protocol = offered.find((name) => PROTOCOLS.includes(name));
  const type = String(headers['content-type'] ?? '');
  const refusal = refusalOf(offered, protocol, type);
  if (refusal !== null) {
    body.destroy();
    sendOnSocket(socket, { status: 400, headers: { 'content-type': 'text/plain' }, body: refusal });
    return;
  }
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE_BYTES,
    handleProtocols: () => protocol ?? false,
  });
  // A handshake that violates RFC 6455: the library answers it.
  server.on('wsClientError', (_error, broken) => {
    body.destroy();
    broken.destroy();
  });
  const messages = messagesOf(body, type, protocol);
  server.handleUpgrade(message, socket, head, (client) => {
    client.on('error', () => client.terminate());
    client.on('close', () => body.destroy());
    sendAll(client, messages).then(
      () => client.close(1000),
      // The stream or the connection failed; the client sees a close without a closing message.
      () => client.terminate(),
    );
  });
}

function refusalOf(offered: readonly string[], protocol: string | undefined, type: string): string | null {
  if (offered.length > 0 && protocol === undefined) {
    return `unknown WebSocket protocol "${offered.join(', ')}": use ${PROTOCOLS.join(' or ')}, or none`;
  }
  return type.includes('protobuf') ? 'a watch over a WebSocket is in JSON: ask for application/json' : null;
}

function messagesOf(
  body: Readable,
  type: string,
  protocol: string | undefined,
): AsyncIterable<string | Buffer> {
  if (type.startsWith('application/json')) return lines(body);
  return protocol === BASE64 ? base64(body) : (body as AsyncIterable<Buffer>);
}

function offeredProtocols(message: IncomingMessage): string[] {
  const value = message.headers['sec-websocket-protocol'] ?? '';
  return value
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** Sends messages one at a time; a slow client slows the stream. */
async function sendAll(client: WebSocket, messages: AsyncIterable<string | Buffer>): Promise<void> {
  for await (const one of messages) {
    await new Promise<void>((resolve, reject) => {
      client.send(one, (error) => (error ? reject(error) : resolve()));
    });
  }
}

/** Yields the complete lines of a byte stream, without line ends. */
async function* lines(body: Readable): AsyncGenerator<string> {
  const parts: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer | string>) {
    let rest = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      yield Buffer.concat([...parts.splice(0), rest.subarray(0, end)]).toString('utf8');
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) parts.push(rest);
  }
  if (parts.length > 0) yield Buffer.concat(parts).toString('utf8');
}

async function* base64(body: Readable): AsyncGenerator<string> {
  for await (const chunk of body as AsyncIterable<Buffer>) yield chunk.toString('base64');
}
