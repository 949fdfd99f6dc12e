import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import { type ClientConnections, createClientConnections } from '../lib/client-connections.ts';
import type { Clock } from '../lib/clock.ts';
import { DEFAULT_CONNECTION_LIMITS } from '../lib/connection-table.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createAuthority } from '../lib/pki.ts';
import { parseBindAddress } from '../proxy/status-servers.ts';
import { readBody } from './agent-state.ts';
import { type CommandAuthorization, CommandRefused } from './command-authorization.ts';
import {
  COMMAND_OPERATIONS,
  type CommandOperation,
  commandPath,
  operationsOf,
  TOKEN_HEADER,
} from './command-rights.ts';

/** The operations of the port; each answers with JSON, except those that write to the response themselves. */
export interface CommandHandlers
  extends Record<Exclude<CommandOperation, 'flows' | 'capture' | 'trace'>, (body: unknown) => unknown> {
  /** These resolve when the reader has disconnected. */
  capture(body: unknown, response: ServerResponse): Promise<void>;
  trace(body: unknown, response: ServerResponse): Promise<void>;
  flows(query: URLSearchParams, response: ServerResponse): void;
}

export interface CommandPortOptions {
  /** "address:port" */
  readonly bind: string;
  readonly node: string;
  readonly authorization: CommandAuthorization;
  readonly handlers: CommandHandlers;
  readonly clock: Clock;
  readonly logger: Logger;
}

const RETRY_MS = 5000;
/** Limits of a port that anybody on the nodes' network can reach. */
const MAX_CONNECTIONS = 128;
const LIMITS = { ...DEFAULT_CONNECTION_LIMITS, maxUnknownPerSource: 16, maxUnknown: 64 };
/** A handshake takes about a millisecond of the process that forwards and answers DNS; API servers connect for each command. */
const RATE = { perSecond: 50, burst: 200 };
const MAX_HEADER_BYTES = 32 << 10;
const MAX_BODY_BYTES = 4 << 20;
const HANDSHAKE_MS = 5000;
const REQUEST_MS = 10_000;
const IDLE_MS = 5000;
/** Requests that are executed at the same time, and streams of packets or flows. */
const MAX_RUNNING = 16;
const MAX_STREAMS = 16;
const KEEP_ALIVE_MS = 30_000;

const PATHS = new Map(operationsOf('operator').map((name) => [commandPath(name), name]));

/**
 * Serves commands from other machines over TLS, to users whom the API server authorizes. The certificate is made at each
 * start and known to no program: API servers, through which commands come, do not verify it, which is why tokens are of use at
 * one node only. An address that is in use is retried.
 */
export function startCommandPort(options: CommandPortOptions): { close(): void } {
  const { bind, node, clock, logger } = options;
  const { host, port } = parseBindAddress('commandsBindAddress', bind);
  const certificate = createAuthority(`fairlead ${node}`, new Date(clock.now())).issue({
    commonName: node,
    names: [node],
    usage: 'server',
  });
  let server: Server | null = null;
  let cancelRetry = () => {};
  const running = { requests: 0, streams: 0 };
  const connections = createClientConnections({ limits: LIMITS, rate: RATE, clock });
  const open = () => {
    server = createServer({
      ...certificate,
      minVersion: 'TLSv1.2',
      handshakeTimeout: HANDSHAKE_MS,
      headersTimeout: HANDSHAKE_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: IDLE_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      connectionsCheckingInterval: 1000,
    });
    server.maxConnections = MAX_CONNECTIONS;
    connections.watch(server);
    server.on('request', (request, response) =>
      serve({ ...options, connections }, running, request, response),
    );
    // Anybody may send such bytes: they are neither logged nor answered.
    server.on('tlsClientError', (_error, socket) => socket.destroy());
    server.on('clientError', (_error, socket) => socket.destroy());
    server.on('secureConnection', (socket) => socket.setKeepAlive(true, KEEP_ALIVE_MS));
    server.on('error', (error) => {
      logger.warn({ address: bind }, `commandsBindAddress: ${messageOf(error)}; trying again`);
      cancelRetry = clock.after(RETRY_MS, open);
    });
    server.listen({ host, port });
    server.unref();
  };
  open();
  return {
    close() {
      cancelRetry();
      server?.close();
      server?.closeAllConnections();
    },
  };
}

interface ServeOptions extends CommandPortOptions {
  readonly connections: ClientConnections;
}

interface Running {
  requests: number;
  streams: number;
}

function serve(
  options: ServeOptions,
  running: Running,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  // A broken connection concerns only its client.
  request.on('error', () => {});
  response.on('error', () => {});
  // Inside the promise, so that a synchronous exception becomes a response too.
  Promise.resolve()
    .then(() => answer(options, running, request, response))
    .catch((error: unknown) => {
      if (response.headersSent) return response.destroy();
      const { op, code, hint } = error instanceof FairleadError ? error : {};
      const status = error instanceof CommandRefused ? error.status : code === undefined ? 500 : 400;
      if (status === 500)
        options.logger.error({ err: error }, `failed to answer a command: ${messageOf(error)}`);
      respond(response, status, { message: messageOf(error), op, code, hint });
    });
}

async function answer(
  options: ServeOptions,
  running: Running,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { authorization, handlers, connections, logger } = options;
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const operation = PATHS.get(path);
  const { method, verb } = operation ? COMMAND_OPERATIONS[operation] : {};
  if (operation === undefined || verb === undefined || request.method !== method)
    return respond(response, 404, { message: `no such operation: ${request.method} ${path}` });
  const token = request.headers[TOKEN_HEADER];
  const user = await authorization.authorize(Array.isArray(token) ? token[0] : token, verb, path);
  connections.know(request.socket);
  if (operation === 'flows' || operation === 'capture' || operation === 'trace') {
    if (running.streams >= MAX_STREAMS)
      throw new CommandRefused(429, `${MAX_STREAMS} commands read from this node`);
    running.streams++;
    response.once('close', () => running.streams--);
    if (operation === 'flows') return handlers.flows(new URLSearchParams(query), response);
    const body = await readBody<unknown>(request, MAX_BODY_BYTES);
    logger.info({ user, operation }, 'observing packets for a command');
    return await handlers[operation](body, response);
  }
  if (running.requests >= MAX_RUNNING)
    throw new CommandRefused(429, 'the agent is busy with other commands', 'try again');
  running.requests++;
  try {
    const body = method === 'POST' ? await readBody<unknown>(request, MAX_BODY_BYTES) : null;
    if (operation === 'mode') logger.info({ user, operation, body }, 'executing a command');
    respond(response, 200, await handlers[operation](body));
  } finally {
    running.requests--;
  }
}

function respond(response: ServerResponse, status: number, body: unknown): void {
  const isRefusal = status !== 200;
  response.writeHead(status, {
    'content-type': 'application/json',
    'x-content-type-options': 'nosniff',
    server: 'fairlead',
    // The rest of a refused request is not read.
    ...(isRefusal ? { connection: 'close' } : {}),
  });
  response.end(JSON.stringify(body));
}
