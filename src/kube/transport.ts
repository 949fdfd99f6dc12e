import { readFileSync } from 'node:fs';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { createSecureContext } from 'node:tls';
import { hostPort } from '../lib/address.ts';
import { afterRunning, systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import type { CredentialSource } from './credential-source.ts';
import type { Credentials } from './credentials.ts';
import { createTunnelAgent, proxyOf } from './proxy-tunnel.ts';
import { trustPublicAuthorities } from './public-authorities.ts';

/** A request to an API server. `path` begins with "/" and includes the query. */
export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly signal?: AbortSignal;
}

export interface ApiResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
}

/** Sends requests to an API server: over HTTPS, or directly to one in this process. */
export type Transport = (request: ApiRequest) => Promise<ApiResponse>;

/** A request and the server, "10.0.0.1:6443", to which it was sent. */
export interface SentRequest {
  readonly method: string;
  readonly host: string;
}

export interface Answer extends SentRequest {
  /** The HTTP status, or "<error>" without a response. */
  readonly code: string;
  /** The time until the response began. */
  readonly seconds: number;
  /** The size of the request's body. */
  readonly bytes: number;
}

export interface TransportOptions {
  /** Milliseconds; for the age of a token. */
  readonly now?: () => number;
  /** Called for each response, or failure, of a request. */
  readonly onAnswer?: (answer: Answer) => void;
  /** Called with the size of each response's body that was read to its end, except watches. */
  readonly onBody?: (request: SentRequest, bytes: number) => void;
  /** Returns the timeout for the next connection, with its TLS handshake; absent: that of the response. */
  readonly connectMs?: () => number;
  /** Milliseconds that requests wait at most for the TLS session of the first one. */
  readonly sessionMs?: number;
  /** Called for each connection once it is open, before a request is sent on it. */
  readonly onConnect?: (socket: Socket) => void;
}

/**
 * The first connection to a server makes a TLS session, which the others continue at half the cost: requests wait this long
 * for it, at most.
 */
const SESSION_MS = 500;

/** Failures of requests before a connection was open. */
const unsent = new WeakSet<object>();

/** Reports whether a request failed before any of it was sent, so that another attempt is not a second request. */
export function isUnsent(error: unknown): boolean {
  return typeof error === 'object' && error !== null && unsent.has(error);
}

const TOKEN_FILE_MS = 60_000;
/** Timeout for the start of a response; watches respond immediately and then last. */
const ANSWER_MS = 30_000;
/**
 * The kernel probes a connection that is idle for this long, then every second; ten without an answer end it, fewer with
 * a limit of unacknowledged time (`onConnect`). A server whose machine fails sends nothing, and a watch would wait for
 * minutes.
 */
const KEEP_ALIVE_MS = 5000;

/**
 * Creates a transport over HTTP or HTTPS with persistent connections. With a CredentialSource, connections that are
 * opened after a change use the new certificates; connections of a watch last until it ends.
 */
export function httpTransport(
  source: Credentials | CredentialSource,
  {
    now = Date.now,
    onAnswer,
    onBody,
    connectMs = () => ANSWER_MS,
    sessionMs = SESSION_MS,
    onConnect,
  }: TransportOptions = {},
): Transport & { close(): void } {
  let connection: Connection | null = 'server' in source ? openConnection(source) : null;
  const connect = async (): Promise<Connection> => {
    const credentials = 'server' in source ? source : await source.current();
    if (connection?.isOf(credentials)) return connection;
    connection?.retire();
    connection = openConnection(credentials);
    return connection;
  };
  let token = { text: '', readAt: Number.NEGATIVE_INFINITY };
  const currentToken = (credentials: Credentials) => {
    if (credentials.tokenFile === undefined) return credentials.token;
    if (now() - token.readAt > TOKEN_FILE_MS) {
      token = { text: readFileSync(credentials.tokenFile, 'utf8').trim(), readAt: now() };
    }
    return token.text;
  };

  const send = async (request: ApiRequest): Promise<ApiResponse> => {
    const connection = await connect();
    const { credentials, agent, secure, host, port, prefix } = connection;
    const isFirst = secure && connection.hasSession === null;
    const { promise: hasSession, resolve: resume } = Promise.withResolvers<void>();
    const resumable = isFirst ? setTimeout(resume, sessionMs) : undefined;
    if (isFirst) connection.hasSession = hasSession;
    else await connection.hasSession;
    return await new Promise((resolve, reject) => {
      const bearer = currentToken(credentials);
      let isAnswered = false;
      let isConnected = false;
      const started = performance.now();
      const sent: SentRequest = { method: request.method, host: hostPort({ ip: host, port: Number(port) }) };
      const bytes = request.body === undefined ? 0 : Buffer.byteLength(request.body);
      const answered = (code: string) =>
        onAnswer?.({ ...sent, code, bytes, seconds: (performance.now() - started) / 1000 });
      const outgoing = (secure ? httpsRequest : httpRequest)(
        {
          agent,
          host,
          port,
          method: request.method,
          path: prefix + request.path,
          headers: {
            ...request.headers,
            ...(credentials.headers as Record<string, string | string[]> | undefined),
            ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
            ...(request.body === undefined ? {} : { 'content-length': bytes }),
          },
          ...(request.signal ? { signal: request.signal } : {}),
        },
        (response: IncomingMessage) => {
          isAnswered = true;
          answered(String(response.statusCode ?? 0));
          if (response.statusCode === 401) {
            token = { text: '', readAt: Number.NEGATIVE_INFINITY };
            if (!('server' in source)) source.refused();
          }
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers as Record<string, string | undefined>,
            body:
              onBody && !IS_WATCH.test(request.path)
                ? counted(response, (size) => onBody(sent, size))
                : response,
          });
        },
      );
      const giveUp = () =>
        outgoing.destroy(
          new FairleadError(`${credentials.server} does not answer`, {
            op: 'connect to API server',
            code: 'ETIMEDOUT',
            object: `${request.method} ${request.path.split('?')[0]}`,
          }),
        );
      const late = setTimeout(giveUp, ANSWER_MS);
      // Time in which this process was busy or stopped is not the server's.
      let cancelConnect = () => {};
      outgoing.on('socket', (socket) => {
        if (isFirst) socket.once('session', resume);
        const connected = () => {
          isConnected = true;
          cancelConnect();
        };
        if (!socket.connecting) return connected();
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        if (onConnect) socket.once('connect', () => onConnect(socket));
        const ms = connectMs();
        if (ms < ANSWER_MS) cancelConnect = afterRunning(systemClock, ms, giveUp);
        socket.once(secure ? 'secureConnect' : 'connect', connected);
      });
      outgoing.on('response', () => {
        clearTimeout(late);
        resume();
      });
      outgoing.on('close', () => {
        clearTimeout(late);
        clearTimeout(resumable);
        resume();
        cancelConnect();
      });
      outgoing.on('error', (error) => {
        if (!isConnected) unsent.add(error);
        if (!isAnswered) answered('<error>');
        reject(error);
      });
      outgoing.end(request.body);
    });
  };
  return Object.assign(send, { close: () => connection?.agent.destroy() });
}

const IS_WATCH = /[?&]watch=(true|1)\b/;

/** Calls `end` with the size of a body when all of it has been read. */
async function* counted(
  body: AsyncIterable<Uint8Array>,
  end: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    yield chunk;
  }
  end(bytes);
}

/** Persistent connections to one server with one set of certificates. */
interface Connection {
  readonly credentials: Credentials;
  readonly agent: HttpAgent;
  readonly secure: boolean;
  readonly host: string;
  readonly port: string;
  /** Prefix of the path: "" or "/clusters/a". */
  readonly prefix: string;
  /** Settles when the first request has a TLS session, or has failed; null before it. */
  hasSession: Promise<void> | null;
  /** Reports whether these credentials can use this connection. */
  isOf(credentials: Credentials): boolean;
  /** Closes idle connections now and the others when their requests end. */
  retire(): void;
}

function openConnection(credentials: Credentials): Connection {
  const base = URL.parse(credentials.server);
  if (!base || !['http:', 'https:'].includes(base.protocol)) {
    throw new FairleadError(`${JSON.stringify(credentials.server)} is not the URL of an API server`, {
      op: 'connect to API server',
      code: 'bad-config',
      hint: 'set server in the kubeconfig to https://HOST:PORT',
    });
  }
  const secure = base.protocol === 'https:';
  if (secure && credentials.ca === undefined && credentials.insecure === undefined) trustPublicAuthorities();
  // Parsed once: each new connection would parse the certificates and the key again.
  const secureContext = secure
    ? createSecureContext({
        ...(credentials.ca === undefined ? {} : { ca: credentials.ca }),
        ...(credentials.cert === undefined ? {} : { cert: credentials.cert }),
        ...(credentials.key === undefined ? {} : { key: credentials.key }),
      })
    : undefined;
  const tls = {
    secureContext,
    ...(credentials.serverName === undefined ? {} : { servername: credentials.serverName }),
    ...(credentials.insecure === undefined ? {} : { rejectUnauthorized: false }),
  };
  const proxy = proxyOf(credentials, base);
  const settings = secure ? { keepAlive: true, maxCachedSessions: 100, ...tls } : { keepAlive: true };
  const agent =
    proxy !== null
      ? createTunnelAgent(proxy, secure, settings)
      : secure
        ? new HttpsAgent(settings)
        : new HttpAgent(settings);
  const identity = ({
    server,
    ca,
    cert,
    key,
    serverName,
    token,
    tokenFile,
    headers,
    proxyUrl,
  }: Credentials) => JSON.stringify([server, ca, cert, key, serverName, token, tokenFile, headers, proxyUrl]);
  const own = identity(credentials);
  return {
    credentials,
    agent,
    secure,
    host: base.hostname.replace(/^\[|\]$/g, ''),
    port: base.port || (secure ? '443' : '80'),
    prefix: base.pathname.replace(/\/$/, ''),
    hasSession: null,
    isOf: (other) => identity(other) === own,
    retire() {
      agent.maxFreeSockets = 0;
      for (const sockets of Object.values(agent.freeSockets)) {
        for (const socket of sockets ?? []) socket.destroy();
      }
    },
  };
}
