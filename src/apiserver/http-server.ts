import { createServer as createHttp1, type Server as Http1Server, type IncomingMessage } from 'node:http';
import { createServer as createHttp2, constants as h2, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createServer as createTls, type TLSSocket, type Server as TlsServer } from 'node:tls';
import type { Clock } from '../lib/clock.ts';
import {
  type Connection,
  type ConnectionLimits,
  type ConnectionTable,
  createConnectionTable,
  DEFAULT_CONNECTION_LIMITS,
} from '../lib/connection-table.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { authenticate } from './authentication/authenticate.ts';
import type { Authenticator, ClientCertificate } from './authentication/authenticator.ts';
import { ANONYMOUS } from './authentication/user.ts';
import type { Handler } from './requests/api-handler.ts';
import {
  discardBody,
  type HttpRequest,
  type HttpResponse,
  readableBody,
  send,
  sendOnSocket,
} from './requests/http-exchange.ts';
import { type BufferPool, createBufferPool } from './requests/long-body.ts';
import type { IncomingRequest, OutgoingResponse, PlainResponse, Upgrade } from './requests/request.ts';
import { isStreamOverWebSocket, sendOverWebSocket } from './requests/websocket-response.ts';
import { StatusError } from './status-error.ts';

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  /** The authority of trusted client certificates. */
  readonly clientCa: string;
}

/** An open descriptor or an address to listen on. */
export type Listener = { readonly fd: number } | { readonly host: string; readonly port: number };

export interface HttpServerOptions {
  readonly tls: TlsMaterial;
  readonly authenticators: readonly Authenticator[];
  readonly clock: Clock;
  readonly logger: Logger;
  readonly handle: Handler;
  readonly limits?: Partial<ConnectionLimits>;
}

/** The handler that answers requests. */
interface Serving extends HttpServerOptions {
  readonly buffers: BufferPool;
  readonly connections: ConnectionTable;
  /** By the client's address and port: HTTP/2 sessions show a proxy of their connection. */
  readonly opened: Map<string, Connection>;
}

/** As http.DefaultMaxHeaderBytes in Go: the path of `kubectl exec` contains the whole command. */
const MAX_HEADER_BYTES = 1 << 20;
const HANDSHAKE_MS = 10_000;
const KEEP_ALIVE_MS = 90_000;
/**
 * Maximum concurrent streams of one HTTP/2 connection: all watches and requests of a controller share one (upstream:
 * 250).
 */
const MAX_STREAMS = 1000;
/** Bytes that a client may send on one stream before the server reads them. */
const WINDOW_BYTES = 1024 * 1024;
/**
 * Memory of one HTTP/2 connection in MB (Node's unit), beyond which new streams are refused (ENHANCE_YOUR_CALM): each stream may
 * have a buffer of a list (128 KiB) and one of events (64 KiB, or a single larger event) that its client does not read. Node's
 * default, 10 MB, is 76 lists.
 */
const SESSION_MEMORY_MB = 256;
/** Connections that are still open this long after the last response are closed. */
const CLOSE_MS = 2000;
/** How often idle connections are looked for. */
const SWEEP_MS = 5000;

/**
 * Serves the API over TLS on every listener, HTTP/2 and HTTP/1.1 on one port (ALPN); protocol upgrades require
 * HTTP/1.1. Resolves when all listen.
 */
export async function serveHttps(
  listeners: readonly Listener[],
  options: HttpServerOptions,
): Promise<{ readonly ports: readonly number[]; close(): Promise<void> }> {
  const { tls } = options;
  const sockets = new Set<Duplex>();
  const sessions = new Set<ServerHttp2Session>();
  const { clock } = options;
  const connections = createConnectionTable({ ...DEFAULT_CONNECTION_LIMITS, ...options.limits });
  const opened = new Map<string, Connection>();
  const serving = { ...options, buffers: createBufferPool(), connections, opened };
  const http1 = http1Server(serving);
  const http2 = http2Server(serving, sessions);
  const servers = listeners.map(() =>
    createTls(
      {
        cert: tls.cert,
        key: tls.key,
        ca: tls.clientCa,
        requestCert: true,
        rejectUnauthorized: false,
        handshakeTimeout: HANDSHAKE_MS,
        ALPNProtocols: ['h2', 'http/1.1'],
      },
      (socket) => {
        sockets.add(socket);
        socket.on('close', () => sockets.delete(socket));
        socket.on('error', () => socket.destroy());
        socket.setNoDelay(true);
        const connection = opened.get(peerOf(socket));
        if (connection && socket.authorized) connections.know(connection);
        (socket.alpnProtocol === 'h2' ? http2 : http1).emit('connection', socket);
      },
    ),
  );
  let cancelSweep = () => {};
  const sweep = () => {
    connections.sweep(clock.now());
    cancelSweep = clock.after(SWEEP_MS, sweep);
  };
  cancelSweep = clock.after(SWEEP_MS, sweep);
  for (const server of servers) {
    server.prependListener('connection', (raw: Socket) => {
      const connection = connections.open(raw.remoteAddress ?? '', clock.now(), () => raw.destroy());
      const peer = peerOf(raw);
      opened.set(peer, connection);
      raw.on('close', () => {
        connections.close(connection);
        if (opened.get(peer) === connection) opened.delete(peer);
      });
    });
    // A failed handshake is the client's error; Node closes the connection.
    server.on('tlsClientError', (error) => options.logger.debug({ err: error }, 'TLS handshake failed'));
  }
  await Promise.all(servers.map((server, i) => listenOn(server, listeners[i])));
  return {
    ports: servers.map((server) => {
      const address = server.address();
      return typeof address === 'object' && address ? address.port : 0;
    }),
    async close() {
      cancelSweep();
      const closed = Promise.all(
        servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
      );
      http1.closeIdleConnections();
      // GOAWAY: no new streams; the connection closes after the last open one.
      for (const session of sessions) session.close();
      const late = setTimeout(
        () => {
          for (const socket of sockets) socket.destroy();
        },
        sockets.size === 0 ? 0 : CLOSE_MS,
      );
      await closed;
      clearTimeout(late);
      for (const socket of sockets) socket.destroy();
    },
  };
}

function http1Server(options: Serving): Http1Server {
  const server = createHttp1({ maxHeaderSize: MAX_HEADER_BYTES }, (request, response) => {
    answer(options, request, response);
  });
  // A watch may be silent for a minute and lasts for an hour; bodies have a separate limit.
  server.requestTimeout = 0;
  // The table of connections ends those whose headers do not end: Node checks only servers that listen themselves.
  server.headersTimeout = 0;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.on('upgrade', (message, socket, head) => {
    socket.on('error', () => socket.destroy());
    answerUpgrade(options, { message, socket, head });
  });
  return server;
}

function http2Server(options: Serving, sessions: Set<ServerHttp2Session>) {
  const server = createHttp2(
    {
      maxSessionMemory: SESSION_MEMORY_MB,
      settings: {
        maxConcurrentStreams: MAX_STREAMS,
        initialWindowSize: WINDOW_BYTES,
        maxHeaderListSize: MAX_HEADER_BYTES,
      },
    },
    (request, response) => {
      answer(options, request, response);
    },
  );
  server.on('session', (session) => {
    sessions.add(session);
    session.on('close', () => sessions.delete(session));
    const connection = options.opened.get(peerOf(session.socket as TLSSocket));
    if (connection) endAtManyResets(session, connection, options.connections);
    // A protocol error ends only its own session.
    session.on('error', (error) => options.logger.debug({ err: error }, 'HTTP/2 session failed'));
  });
  return server;
}

/** Ends the session of a client without credentials that opens streams and resets them (CVE-2023-44487). */
function endAtManyResets(
  session: ServerHttp2Session,
  connection: Connection,
  connections: ConnectionTable,
): void {
  session.on('stream', (stream) => {
    stream.once('close', () => {
      if (stream.rstCode === h2.NGHTTP2_NO_ERROR || session.destroyed) return;
      if (connections.reset(connection)) session.destroy(undefined, h2.NGHTTP2_ENHANCE_YOUR_CALM);
    });
  });
}

type Peer = Pick<Socket, 'remoteAddress' | 'remotePort'>;
const peerOf = ({ remoteAddress = '', remotePort = 0 }: Peer) => `${remoteAddress} ${remotePort}`;

/** Counts a request of a connection until `ended` emits "close". Returns the connection. */
function countRequest(options: Serving, socket: Peer, ended: NodeJS.EventEmitter): Connection | undefined {
  const connection = options.opened.get(peerOf(socket));
  if (!connection) return undefined;
  connection.requests++;
  ended.once('close', () => {
    connection.requests--;
    connection.idleSince = options.clock.now();
  });
  return connection;
}

function listenOn(server: TlsServer, where: Listener | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** The reason of every aborted exchange: without one, each would get an exception with a stack of its own. */
const ENDED = new Error('the exchange has ended');

/** Answers a request; a failure ends only this exchange. */
function answer(options: Serving, request: HttpRequest, response: HttpResponse): void {
  const gone = new AbortController();
  response.on('close', () => gone.abort(ENDED));
  request.on('error', () => gone.abort(ENDED));
  response.on('error', () => gone.abort(ENDED));
  const connection = countRequest(options, tlsSocket(request), response);
  respondTo(options, request, null, gone.signal, connection).then(
    (outgoing) => {
      if (outgoing !== 'upgraded') sendOr502(options, request, response, outgoing);
    },
    (error: unknown) => {
      options.logger.error({ url: request.url, err: error }, 'request could not be answered');
      response.stream?.destroy();
      request.socket?.destroy();
    },
  );
}

/** Sends a response; Node.js throws for some that pods, nodes and other API servers send, such as the status 999 in HTTP/2. */
function sendOr502(
  { buffers, logger }: Serving,
  request: HttpRequest,
  response: HttpResponse,
  outgoing: PlainResponse,
): void {
  try {
    send(request, response, outgoing, buffers);
  } catch (error) {
    logger.warn({ url: request.url, err: error }, 'a response cannot be sent');
    discardBody(outgoing);
    const message = `the response cannot be sent: ${messageOf(error)}`;
    send(request, response, refusal(new StatusError(502, 'BadGateway', message)), buffers);
  }
}

function answerUpgrade(options: Serving, upgrade: Upgrade): void {
  const gone = new AbortController();
  const { message, socket } = upgrade;
  socket.on('close', () => gone.abort(ENDED));
  const connection = countRequest(options, socket as TLSSocket, socket);
  respondTo(options, message, upgrade, gone.signal, connection)
    .then((outgoing) => {
      if (outgoing === 'upgraded') return;
      if (isStreamOverWebSocket(message, outgoing)) sendOverWebSocket(upgrade, outgoing);
      else sendOnSocket(socket, outgoing);
    })
    .catch((error: unknown) => {
      options.logger.error({ url: message.url, err: error }, 'upgrade could not be answered');
      socket.destroy();
    });
}

async function respondTo(
  options: Serving,
  request: HttpRequest,
  upgrade: Upgrade | null,
  signal: AbortSignal,
  connection: Connection | undefined,
): Promise<OutgoingResponse> {
  const headers: Record<string, string | undefined> = {};
  for (const [name, value] of Object.entries(request.headers)) {
    headers[name] = Array.isArray(value) ? value.join(', ') : value;
  }
  try {
    const certificate = clientCertificate(upgrade ? (upgrade.socket as TLSSocket) : tlsSocket(request));
    const user = await authenticate(options.authenticators, { headers, certificate });
    if (connection && !connection.isKnown && user !== ANONYMOUS) options.connections.know(connection);
    // Nothing is done for a client that has reset its stream meanwhile.
    if (signal.aborted) throw new StatusError(499, 'ClientClosedRequest', ENDED.message);
    const incoming: IncomingRequest = {
      method: request.method ?? 'GET',
      url: request.url ?? '/',
      headers,
      user,
      internal: false,
      signal,
      upgrade,
      ...readableBody(request, upgrade !== null, options.clock),
    };
    return await options.handle(incoming);
  } catch (error) {
    if (error instanceof StatusError) return refusal(error);
    throw error;
  }
}

/** Builds a refusal before a handler is called: JSON, independent of the Accept header. */
function refusal(error: StatusError): PlainResponse {
  return {
    status: error.code,
    headers: { 'content-type': 'application/json' },
    body: `${JSON.stringify(error)}\n`,
  };
}

function tlsSocket(request: HttpRequest): TLSSocket {
  const session = 'stream' in request ? request.stream?.session : undefined;
  return (session?.socket ?? (request as IncomingMessage).socket) as TLSSocket;
}

const certificates = new WeakMap<object, ClientCertificate | null>();

/** Reads the certificate of a connection, once. */
function clientCertificate(socket: TLSSocket): ClientCertificate | null {
  const known = certificates.get(socket);
  if (known !== undefined) return known;
  const read = socket.authorized ? readCertificate(socket) : null;
  certificates.set(socket, read);
  return read;
}

function readCertificate(socket: TLSSocket): ClientCertificate | null {
  const certificate = socket.getPeerCertificate();
  const { subject } = certificate;
  if (!subject) return null;
  // Repeated names are a list.
  const names = (value: unknown): string[] =>
    value === undefined ? [] : Array.isArray(value) ? value.map(String) : [String(value)];
  return {
    commonName: names(subject.CN)[0] ?? '',
    organizations: names(subject.O),
    fingerprint: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
  };
}
