import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
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
const API = '/api/';

/** Serves the page on this machine's loopback. Throws FairleadError if the port cannot be used. */
export async function servePage(options: PageServerOptions): Promise<PageServer> {
  const { token } = options;
  let port = 0;
  const server = createServer(
    { headersTimeout: HEADERS_MS, maxHeaderSize: 16 << 10 },
    (request, response) => {
      response.on('error', () => response.destroy());
      for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
      const { host, origin } = request.headers;
      const admission = admit(
        { method: request.method ?? '', url: request.url ?? '', host, origin },
        token,
        port,
      );
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
  server.on('clientError', (_error, socket) => {
    if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n');
    else socket.destroy();
  });
  // Upgrades and CONNECT are not answered by the handler above.
  server.on('upgrade', (_request, socket) => socket.destroy());
  server.on('connect', (_request, socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(listenFailure(error, options.port)));
    server.listen(options.port, ADDRESS, resolve);
  });
  const address = server.address();
  port = typeof address === 'object' && address !== null ? address.port : options.port;
  return {
    url: `http://${ADDRESS}:${port}/${token}/`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
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
  response.writeHead(200, { 'content-type': file.type, 'content-length': file.content.length });
  response.end(request.method === 'HEAD' ? undefined : file.content);
}

function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(`${text}\n`);
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
