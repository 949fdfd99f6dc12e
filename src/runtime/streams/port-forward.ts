import type { IncomingMessage } from 'node:http';
import type { Duplex, Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createWebSocketStream } from 'ws';
import { describeError, FairleadError, messageOf } from '../../lib/errors.ts';
import { SpdySession, type SpdyStream } from './spdy-session.ts';
import { choose, listed, openSpdy, openWebSocket, refuse, wantsWebSocket } from './upgrade.ts';
import { WebSocketChannels } from './websocket-channels.ts';

/** A channel is a byte, of which 255 has another meaning; each port has two. */
const MAX_PORTS = 127;

/** Opens a connection to a port of the pod. */
export type Dial = (port: number) => Promise<Duplex>;

const SPDY_PROTOCOL = 'portforward.k8s.io';
/** SPDY within a WebSocket, which passes proxies that do not support SPDY (KEP-4006). */
const TUNNEL_PROTOCOL = 'SPDY/3.1+portforward.k8s.io';
const CHANNEL_PROTOCOLS = ['v4.channel.k8s.io', 'v4.base64.channel.k8s.io', 'portforward.k8s.io'];

/**
 * Answers the upgrade of a port-forward request and serves it: SPDY/3.1, SPDY/3.1 within a WebSocket, or WebSocket
 * channels (one connection for each port of the query). Resolves when the client has disconnected. An unsupported
 * request is answered with an HTTP error, and a FairleadError is thrown; an unreachable port is reported to the client.
 */
export async function acceptPortForward(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  dial: Dial,
): Promise<void> {
  if (!wantsWebSocket(request, socket)) {
    const offered = listed(request, 'x-stream-protocol-version');
    const protocol = choose(offered, [SPDY_PROTOCOL], true);
    if (protocol === null) {
      throw refuse(socket, 403, `none of the stream protocols ${offered.join(', ')} is supported`);
    }
    openSpdy(socket, protocol);
    await serveSpdy(socket, head, dial);
    return;
  }
  const offered = listed(request, 'sec-websocket-protocol');
  if (offered.includes(TUNNEL_PROTOCOL)) {
    const webSocket = await openWebSocket(request, socket, head, TUNNEL_PROTOCOL);
    await serveSpdy(createWebSocketStream(webSocket), Buffer.alloc(0), dial);
    return;
  }
  const protocol = choose(offered, CHANNEL_PROTOCOLS, true);
  if (protocol === null) {
    throw refuse(socket, 400, `none of the subprotocols ${offered.join(', ')} is supported`);
  }
  const ports = queryPorts(request);
  if (ports === null || ports.length === 0) {
    throw refuse(socket, 400, 'the query must name the ports to forward to, such as ?ports=80 (1 to 65535)');
  }
  if (ports.length > MAX_PORTS) throw refuse(socket, 400, `the query names more than ${MAX_PORTS} ports`);
  const webSocket = await openWebSocket(request, socket, head, protocol);
  await serveChannels(
    new WebSocketChannels(webSocket, {
      inputs: ports.map((_, index) => index * 2),
      base64: protocol.includes('base64'),
    }),
    ports,
    dial,
  );
}

interface Pair {
  data?: SpdyStream;
  error?: SpdyStream;
}

/** Each forwarded connection is a pair of streams with the same request id: one for data, one for errors. */
async function serveSpdy(carrier: Duplex, head: Buffer, dial: Dial): Promise<void> {
  const pairs = new Map<string, Pair>();
  const session = new SpdySession(carrier, head, (stream) => {
    const type = stream.headers.get('streamtype');
    if (type !== 'data' && type !== 'error') {
      stream.destroy();
      return;
    }
    // Old clients send no id; they open the error stream first, then the data stream.
    const id = stream.headers.get('requestid') ?? `stream ${type === 'error' ? stream.id : stream.id - 2}`;
    const pair = pairs.get(id) ?? {};
    pairs.set(id, pair);
    if (pair[type]) {
      stream.destroy();
      return;
    }
    pair[type] = stream;
    // Its other stream may never come.
    stream.once('close', () => {
      if (pairs.get(id) === pair) pairs.delete(id);
    });
    const { data, error } = pair;
    if (!data || !error) return;
    pairs.delete(id);
    // The client sends nothing on the error stream except its end.
    error.resume();
    void forward(Number(data.headers.get('port')), data, data, error, dial).finally(() => {
      error.end();
      data.end();
    });
  });
  await session.closed;
}

/**
 * Serves WebSocket channels: 2n carries the data of the n-th port, 2n+1 its errors; each begins with the port, two
 * bytes, little-endian.
 */
async function serveChannels(
  channels: WebSocketChannels,
  ports: readonly number[],
  dial: Dial,
): Promise<void> {
  const { closed } = channels;
  const forwards: Promise<void>[] = [];
  for (const [index, port] of ports.entries()) {
    const greeting = Buffer.alloc(2);
    greeting.writeUInt16LE(port);
    const data = channels.output(index * 2);
    const error = channels.output(index * 2 + 1);
    data.on('error', () => {}).write(greeting);
    error.on('error', () => {}).write(greeting);
    // These clients cannot half-close: the connection ends when the pod ends it.
    forwards.push(forward(port, channels.input(index * 2), data, error, dial, true));
  }
  const gone = new Promise<void>((resolve) => {
    if (closed.aborted) resolve();
    else closed.addEventListener('abort', () => resolve());
  });
  await Promise.race([gone, Promise.all(forwards)]);
  channels.close();
}

/**
 * Joins the client's stream to the pod's port until both directions have ended or, with `endsTogether`, the pod's has;
 * reports an error on the error stream.
 */
async function forward(
  port: number,
  input: Readable,
  output: Writable,
  errors: Writable,
  dial: Dial,
  endsTogether = false,
): Promise<void> {
  let target: Duplex;
  try {
    if (!isPort(port)) {
      const hint = 'use a number from 1 to 65535';
      throw new FairleadError(`${port} is not a port`, { op: 'forward port', code: 'BadRequest', hint });
    }
    target = await dial(port);
  } catch (error) {
    errors.write(`error forwarding port ${port} to pod: ${describeError(error)}`);
    return;
  }
  const ways = [pipeline(input, target), pipeline(target, output)];
  if (endsTogether) ways[1]?.finally(() => target.destroy()).catch(() => {});
  const [, back] = await Promise.allSettled(ways);
  if (back?.status === 'rejected' && !output.destroyed && !errors.writableEnded) {
    errors.write(`error forwarding port ${port} to pod: ${messageOf(back.reason)}`);
  }
  target.destroy();
}

/** Returns the ports of the query: `port` as in kubelets, `ports` as in the API. Null if one is malformed. */
function queryPorts(request: IncomingMessage): number[] | null {
  const query = new URL(request.url ?? '/', 'http://localhost').searchParams;
  const values = [...query.getAll('port'), ...query.getAll('ports')].flatMap((value) => value.split(','));
  const ports = values.map(Number);
  return ports.every(isPort) ? ports : null;
}

function isPort(port: number): boolean {
  return Number.isInteger(port) && port > 0 && port < 65536;
}
