import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Http2ServerRequest, type Http2ServerResponse, constants as http2 } from 'node:http2';
import { type Duplex, Readable } from 'node:stream';
import { createGzip, gzipSync } from 'node:zlib';
import type { Clock } from '../../lib/clock.ts';
import { StatusError } from '../status-error.ts';
import { type BufferPool, LongBody, writeLongBody } from './long-body.ts';
import type { IncomingRequest, PlainResponse } from './request.ts';

/** Requests of both HTTP versions; the methods used here are the same. */
export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = (ServerResponse | Http2ServerResponse) & {
  readonly stream?: { destroy(): void };
};

/** Longer bodies are refused (k8s.io/apiserver MaxRequestBodyBytes). */
export const MAX_BODY_BYTES = 3 * 1024 * 1024;
/** Timeout for reading a body. */
const BODY_MS = 60_000;
/** Shorter responses are not compressed (upstream's limit). */
const GZIP_BYTES = 128 * 1024;
const GZIP = { level: 1 };
const COMPRESSED = { 'content-encoding': 'gzip', vary: 'Accept-Encoding' };
/** Headers that HTTP/2 does not allow (RFC 9113, section 8.2.2). */
const CONNECTION_HEADERS = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
  'proxy-connection',
]);

/** Builds the readers of a request's body: the whole body, with limits of size and time, or a stream. */
export function readableBody(
  request: HttpRequest,
  isUpgrade: boolean,
  clock: Clock,
): Pick<IncomingRequest, 'body' | 'stream'> {
  if (isUpgrade) return { body: async () => Buffer.alloc(0), stream: () => Readable.from([]) };
  return { body: () => wholeBody(request, clock), stream: () => request };
}

function wholeBody(request: HttpRequest, clock: Clock): Promise<Buffer> {
  const tooLarge = () =>
    new StatusError(413, 'RequestEntityTooLarge', `Request entity too large: limit is ${MAX_BODY_BYTES}`, {});
  return new Promise((resolve, reject) => {
    if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES) {
      reject(tooLarge());
      return;
    }
    const chunks: Buffer[] = [];
    let size = 0;
    const cancelLate = clock.after(BODY_MS, () => {
      finish();
      reject(
        new StatusError(
          408,
          'Timeout',
          `the body of the request did not come within ${BODY_MS / 1000} s`,
          {},
        ),
      );
    });
    const data = (chunk: Buffer) => {
      size += chunk.length;
      chunks.push(chunk);
      if (size <= MAX_BODY_BYTES) return;
      finish();
      reject(tooLarge());
    };
    const end = () => {
      finish();
      resolve(Buffer.concat(chunks));
    };
    const gone = () => {
      finish();
      reject(
        new StatusError(
          400,
          'BadRequest',
          'the client closed the connection before its request was complete',
        ),
      );
    };
    const finish = () => {
      cancelLate();
      request.off('data', data).off('end', end).off('close', gone).off('error', gone);
      request.pause();
    };
    request.on('data', data).on('end', end).on('close', gone).on('error', gone);
  });
}

/** Writes a response, compressed if the client accepts that and it is long enough. */
export function send(
  request: HttpRequest,
  response: HttpResponse,
  outgoing: PlainResponse,
  buffers: BufferPool,
): void {
  if (response.destroyed || response.headersSent) {
    discardBody(outgoing);
    return;
  }
  const { status, body } = outgoing;
  const isHttp2 = request.httpVersionMajor >= 2;
  const headers: Record<string, string | string[] | number> = {};
  for (const [name, value] of Object.entries(outgoing.headers)) {
    if (isHttp2 && CONNECTION_HEADERS.has(name)) continue;
    headers[name] = typeof value === 'string' ? value : [...value];
  }
  if (!request.complete) abandonBody(request, response, headers, isHttp2);
  const head = (more: Record<string, string | number> = {}) => {
    // Both classes have this method, but with incompatible types.
    (response as ServerResponse).writeHead(status, { ...headers, ...more });
  };
  const isGzipAccepted =
    headers['content-encoding'] === undefined &&
    /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''));
  if (typeof body === 'string' || Buffer.isBuffer(body)) {
    const plain = typeof body === 'string' ? Buffer.from(body) : body;
    const gzip = isGzipAccepted && plain.length > GZIP_BYTES;
    const bytes = gzip ? gzipSync(plain, GZIP) : plain;
    head({
      ...(gzip ? COMPRESSED : {}),
      ...(status === 304 || status === 204 ? {} : { 'content-length': bytes.length }),
    });
    if (request.method === 'HEAD') response.end();
    else response.end(bytes);
    return;
  }
  if (body instanceof LongBody) {
    head(isGzipAccepted ? COMPRESSED : {});
    if (request.method === 'HEAD') response.end();
    else sendLongBody(body, isGzipAccepted, request, response, buffers);
    return;
  }
  head();
  if (request.method === 'HEAD') {
    body.destroy();
    response.end();
    return;
  }
  if ('flushHeaders' in response) response.flushHeaders();
  body.on('error', () => cut(request, response));
  // Of a client that lags too far, for instance: it must not wait for the rest.
  body.on('close', () => {
    if (!body.readableEnded) cut(request, response);
  });
  response.on('close', () => body.destroy());
  body.pipe(response as ServerResponse);
}

/** Sends a body piece by piece; ends the exchange if that fails. */
function sendLongBody(
  body: LongBody,
  isCompressed: boolean,
  request: HttpRequest,
  response: HttpResponse,
  buffers: BufferPool,
): void {
  const closed = new AbortController();
  const plain = response as ServerResponse;
  const sink = isCompressed ? createGzip(GZIP) : plain;
  response.on('close', () => {
    closed.abort(new Error('the response was closed'));
    if (sink !== plain) sink.destroy();
  });
  if (sink !== plain) sink.on('error', () => cut(request, response)).pipe(plain);
  writeLongBody(body, sink, buffers, closed.signal).catch(() => cut(request, response));
}

/** Aborts a response that cannot be completed, so that the client does not treat it as complete. */
function cut(request: HttpRequest, response: HttpResponse): void {
  if (request.httpVersionMajor >= 2)
    (request as Http2ServerRequest).stream.close(http2.NGHTTP2_INTERNAL_ERROR);
  else (response as ServerResponse).destroy();
}

/** Closes the source of a body that is not sent. */
export function discardBody(outgoing: PlainResponse): void {
  if (outgoing.body instanceof Readable) outgoing.body.destroy();
}

/** Prevents a partly read body (refused or too long) from blocking the connection. */
function abandonBody(
  request: HttpRequest,
  response: HttpResponse,
  headers: Record<string, unknown>,
  isHttp2: boolean,
): void {
  // A request without a body may count as incomplete while it is answered.
  const { headers: sent } = request;
  const isWithoutBody = sent['transfer-encoding'] === undefined && Number(sent['content-length'] ?? 0) === 0;
  if ((request.method === 'GET' || request.method === 'HEAD') && (isHttp2 || isWithoutBody)) return;
  if (!isHttp2) headers['connection'] = 'close';
  request.resume();
  response.on('finish', () => {
    const late = setTimeout(() => request.destroy(), 1000);
    late.unref();
    request.on('close', () => clearTimeout(late));
  });
}

/** Writes a response other than an upgrade to a connection that requested one, and ends the connection. */
export function sendOnSocket(socket: Duplex, outgoing: PlainResponse): void {
  const { status, headers } = outgoing;
  const body = outgoing.body instanceof LongBody ? outgoing.body.whole() : outgoing.body;
  const lines = [`HTTP/1.1 ${status} ${STATUS_WORDS[status] ?? 'Status'}`];
  for (const [name, value] of Object.entries(headers)) {
    if (CONNECTION_HEADERS.has(name)) continue;
    for (const one of typeof value === 'string' ? [value] : value) lines.push(`${name}: ${one}`);
  }
  lines.push('connection: close');
  if (typeof body === 'string' || Buffer.isBuffer(body)) {
    socket.write(`${lines.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`);
    socket.end(body);
    return;
  }
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  body.on('error', () => socket.destroy());
  socket.on('close', () => body.destroy());
  body.pipe(socket);
}

const STATUS_WORDS: Readonly<Record<number, string>> = {
  200: 'OK',
  201: 'Created',
  301: 'Moved Permanently',
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  500: 'Internal Server Error',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};
