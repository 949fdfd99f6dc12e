import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { type WebSocket, WebSocketServer } from 'ws';
import { passedListener } from '../cluster/rootless/passed-listeners.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { PageFile } from './page-files.ts';
import { admit, SECURITY_HEADERS } from './request-guard.ts';
import type { Refusal } from './view.ts';

/** An operation of the page: the body of a POST as JSON (null otherwise), and the query; resolves to the answer's JSON. */
export type Operation = (body: unknown, query: URLSearchParams, signal: AbortSignal) => Promise<unknown>;

export interface PageServerOptions {
  /** 0: any free port. */
  readonly port: number;
  readonly token: string;
  readonly files: ReadonlyMap<string, PageFile>;
  /** By method and path below "/api/": "POST explain". */
  readonly operations: ReadonlyMap<string, Operation>;
  /** Answers GET /api/events; false: there are too many streams. */
  readonly openStream: (response: ServerResponse) => boolean;
  /** Receives the WebSockets that pages open, by path below "/api/": "shell". */
  readonly sockets: ReadonlyMap<string, (socket: WebSocket, query: URLSearchParams) => void>;
}

export interface PageServer {
  /** The address of the page, with its token. */
  readonly url: string;
  close(): Promise<void>;
}

const ADDRESS = '127.0.0.1';
const MAX_BODY = 64 << 10;
const MAX_CONNECTIONS = 128;
const HEADERS_MS = 10_000;
/** The largest message of a page's WebSocket. */
const MAX_MESSAGE = 64 << 10;
const API = '/api/';

/** Serves the page on this machine's loopback. Throws FairleadError if the port cannot be used. */
export async function servePage(options: PageServerOptions): Promise<PageServer> {
  const { token } = options;
  const admitRequest = (
    { method = '', url = '', headers: { host, origin } }: IncomingMessage,
    isUpgrade: boolean,
  ) => admit({ method, url, host, origin, isUpgrade }, token);
  const webSockets = new WebSocketServer({
    noServer: true,
    clientTracking: true,
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE,
  });
  const server = createServer(
    { headersTimeout: HEADERS_MS, maxHeaderSize: 16 << 10 },
    (request, response) => {
      response.on('error', () => response.destroy());
      for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
      const admission = admitRequest(request, false);
      if (!admission.isAdmitted) {
        request.resume();
        sendText(response, admission.status, admission.reason);
        return;
      }
      const { path, query } = admission;
      if (path.startsWith(API)) void answer(options, request, response, path.slice(API.length), query);
      else sendFile(response, request, options.files.get(path));
    },
  );
  server.maxConnections = MAX_CONNECTIONS;
  server.on('clientError', (error, socket) => {
    // Browsers open connections in advance: an answer there would be read as that to the next request.
    if (socket.writable && !hasCode(error, 'ERR_HTTP_REQUEST_TIMEOUT'))
      socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n');
    else socket.destroy();
  });
  // Upgrades and CONNECT are not answered by the handler above.
  server.on('upgrade', (request, socket, head) => {
    socket.on('error', () => socket.destroy());
    const admission = admitRequest(request, true);
    if (!admission.isAdmitted) {
      refuseUpgrade(socket, admission.status, admission.reason);
      return;
    }
    const { path, query } = admission;
    const open = path.startsWith(API) ? options.sockets.get(path.slice(API.length)) : undefined;
    if (open) webSockets.handleUpgrade(request, socket, head, (webSocket) => open(webSocket, query));
    else refuseUpgrade(socket, 404, 'the page has no such WebSocket');
  });
  server.on('connect', (_request, socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(listenFailure(error, options.port)));
    const [fd] = passedListener(options.port)?.descriptors ?? [];
    if (fd === undefined) server.listen(options.port, ADDRESS, resolve);
    else server.listen({ fd }, resolve);
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : options.port;
  return {
    url: `http://${ADDRESS}:${port}/${token}/`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        for (const client of webSockets.clients) client.terminate();
      }),
  };
}

async function answer(
  { operations, openStream }: PageServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
  name: string,
  query: URLSearchParams,
): Promise<void> {
  if (request.method === 'GET' && name === 'events') {
    if (!openStream(response)) sendJson(response, 503, { message: 'too many pages are open' });
    return;
  }
  const operation = operations.get(`${request.method} ${name}`);
  if (!operation) {
    request.resume();
    sendJson(response, 404, { message: `no such operation: ${request.method} ${name}` });
    return;
  }
  const left = new AbortController();
  response.on('close', () => left.abort());
  try {
    const body = request.method === 'GET' ? null : await readJson(request);
    sendJson(response, 200, await operation(body, query, left.signal));
  } catch (error) {
    const isKnown = error instanceof FairleadError;
    const refusal: Refusal = {
      message: messageOf(error),
      ...(isKnown && error.hint !== undefined ? { hint: error.hint } : {}),
    };
    sendJson(response, isKnown ? 400 : 500, refusal);
  }
}

/** Reads a body of JSON; one without content is null. Throws FairleadError. */
async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY) throw badRequest(`the request is larger than ${MAX_BODY} bytes`);
    chunks.push(chunk as Buffer);
  }
  if (size === 0) return null;
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw badRequest(`the request is not JSON: ${messageOf(error)}`);
  }
}

const badRequest = (message: string) =>
  new FairleadError(message, { op: 'answer the page', code: 'BadRequest' });

function sendFile(response: ServerResponse, request: IncomingMessage, file: PageFile | undefined): void {
  request.resume();
  if (!file || (request.method !== 'GET' && request.method !== 'HEAD')) {
    sendText(response, file ? 405 : 404, file ? 'the method is not supported' : 'the page has no such file');
    return;
  }
  const isCompressed = /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''));
  const content = isCompressed ? compressedOf(file) : file.content;
  response.writeHead(200, {
    'content-type': file.type,
    'content-length': content.length,
    vary: 'accept-encoding',
    ...(isCompressed ? { 'content-encoding': 'gzip' } : {}),
  });
  response.end(request.method === 'HEAD' ? undefined : content);
}

const compressed = new WeakMap<PageFile, Buffer>();

/** Compresses a file when it is first asked for: most runs of the command never serve the terminal. */
function compressedOf(file: PageFile): Buffer {
  const known = compressed.get(file) ?? gzipSync(file.content);
  compressed.set(file, known);
  return known;
}

function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(`${text}\n`);
}

function refuseUpgrade(socket: Duplex, status: number, reason: string): void {
  const headers = { ...SECURITY_HEADERS, 'content-type': 'text/plain; charset=utf-8', connection: 'close' };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${reason}\n`);
}

function sendJson(response: ServerResponse, status: number, value: unknown): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify(value));
}

function listenFailure(error: unknown, port: number): Error {
  if (!hasCode(error, 'EADDRINUSE', 'EACCES')) return error as Error;
  const isUsed = hasCode(error, 'EADDRINUSE');
  return new FairleadError(
    isUsed ? `port ${port} of this machine is in use` : `this process may not listen on port ${port}`,
    {
      op: 'fairlead ui',
      code: isUsed ? 'EADDRINUSE' : 'EACCES',
      hint: isUsed ? 'choose another port, or leave out --port' : 'choose a port from 1024 on',
      cause: error,
    },
  );
}
