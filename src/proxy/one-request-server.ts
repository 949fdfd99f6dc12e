import { STATUS_CODES } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../lib/errors.ts';
import { boundClients, STATUS_BOUNDS } from './client-bounds.ts';

/** The parts of a request on which the answer depends. */
export interface StatusRequest {
  /** Without the query. */
  readonly path: string;
  readonly accept: string | undefined;
}

export interface StatusResponse {
  readonly code: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface OneRequestServer {
  /** Not listening yet. */
  readonly server: Server;
  /** Stops listening, and closes all connections. */
  close(): void;
}

/** Requests must be complete by then. */
const REQUEST_MS = 10_000;
/** As Node.js's own server: of the request line and all fields. */
const MAX_HEAD_BYTES = 16 << 10;
const REQUEST_LINE = /^([A-Za-z]+) (\S+) HTTP\/1\.[01]$/;

/**
 * Creates a server of HTTP/1.1 (RFC 9112) that reads one request of each connection, answers it by its path, and closes. Anybody may
 * connect: Node.js's own server parses all requests that a client sends at once, before one can be refused, which takes the
 * time of the process that forwards and answers DNS. Bodies are not read.
 */
export function createOneRequestServer(
  answer: (request: StatusRequest) => Promise<StatusResponse> | StatusResponse,
): OneRequestServer {
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true });
  // First, so that what is refused is not read.
  boundClients(server, STATUS_BOUNDS);
  server.on('connection', (socket) => {
    if (socket.destroyed) return;
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    serve(socket, answer);
  });
  return {
    server,
    close() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

function serve(
  socket: Socket,
  answer: (request: StatusRequest) => Promise<StatusResponse> | StatusResponse,
): void {
  // It is silent, or does not read its answer.
  const late = setTimeout(() => socket.destroy(), REQUEST_MS).unref();
  socket.once('close', () => clearTimeout(late));
  socket.on('error', () => {});
  const refuse = (code: number) => write(socket, { code, headers: {}, body: '' }, false);
  let head = Buffer.alloc(0);
  const read = (chunk: Buffer) => {
    const before = head.length;
    head = Buffer.concat([head, chunk.subarray(0, MAX_HEAD_BYTES - before)]);
    const end = head.indexOf('\r\n\r\n', Math.max(0, before - 3));
    if (end < 0 && head.length < MAX_HEAD_BYTES) return;
    // The rest is not read.
    socket.off('data', read).pause();
    if (end < 0) return refuse(431);
    const request = parse(head.toString('latin1', 0, end));
    if (request === null) return refuse(400);
    // Inside the promise, so that a synchronous exception becomes a response too.
    Promise.resolve(request)
      .then(answer)
      .catch((error: unknown) => ({ code: 500, headers: {}, body: `${messageOf(error)}\n` }))
      .then((response) => write(socket, response, request.isHead));
  };
  socket.on('data', read);
  socket.once('end', () => {
    if (socket.listenerCount('data') > 0) socket.destroy();
  });
}

/** Returns null for what is not a request. */
function parse(head: string): (StatusRequest & { readonly isHead: boolean }) | null {
  const [line = '', ...fields] = head.split('\r\n');
  const [, method = '', target = ''] = REQUEST_LINE.exec(line) ?? [];
  // An absolute form names the host, too.
  const path = /^(?:http:\/\/[^/?#]*)?(\/[^?#]*)/i.exec(target)?.[1];
  if (path === undefined) return null;
  const accept = fields.find((field) => /^accept:/i.test(field));
  return { path, accept: accept?.slice('accept:'.length).trim(), isHead: method.toUpperCase() === 'HEAD' };
}

function write(socket: Socket, { code, headers, body }: StatusResponse, isHead: boolean): void {
  const bytes = Buffer.from(body);
  const lines = [
    `HTTP/1.1 ${code} ${STATUS_CODES[code] ?? ''}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${bytes.length}`,
    'connection: close',
    '',
    '',
  ];
  const head = Buffer.from(lines.join('\r\n'), 'latin1');
  socket.end(isHead ? head : Buffer.concat([head, bytes]), () => socket.destroy());
}
