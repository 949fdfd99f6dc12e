import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import type { Logger } from '../lib/log.ts';
import type { IncomingRequest, OutgoingResponse, User } from './api-request.ts';
import type { TokenIssuer } from './service-account-tokens.ts';
import { StatusError } from './status-error.ts';

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  /** The authority whose client certificates are believed. */
  readonly clientCa: string;
}

/** Where to listen: an open descriptor, or an address. */
export type Listener = { readonly fd: number } | { readonly host: string; readonly port: number };

export interface HttpServerOptions {
  readonly tls: TlsMaterial;
  readonly tokens: TokenIssuer;
  readonly logger: Logger;
  readonly handle: (request: IncomingRequest) => Promise<OutgoingResponse>;
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

/** A body longer than this is refused (upstream: 3 MiB for etcd's sake). */
const MOST_BODY_BYTES = 8 * 1024 * 1024;
/** Shorter answers are not worth compressing (upstream's limit). */
const GZIP_BYTES = 128 * 1024;
/** Open to everybody: whether the server is well. */
const OPEN_PATHS = new Set(['/healthz', '/livez', '/readyz']);

/** Serves the API over HTTPS on every listener. Resolves when all of them listen. */
export async function serveHttps(
  listeners: readonly Listener[],
  options: HttpServerOptions,
): Promise<{ readonly ports: readonly number[]; close(): Promise<void> }> {
  const { tls } = options;
  const listener: RequestListener = (request, response) => {
    answer(options, request, response).catch((error: unknown) => {
      options.logger.error({ url: request.url, err: error }, 'request could not be answered');
      response.destroy();
    });
  };
  const servers = listeners.map(() =>
    createHttpsServer(
      {
        cert: tls.cert,
        key: tls.key,
        ca: tls.clientCa,
        requestCert: true,
        rejectUnauthorized: false,
        ALPNProtocols: ['http/1.1'],
      },
      listener,
    ),
  );
  const upgraded = new Set<Duplex>();
  await Promise.all(
    servers.map((server, i) => {
      // A watch is silent for a minute, and lives for an hour.
      server.requestTimeout = 0;
      server.headersTimeout = 30_000;
      server.keepAliveTimeout = 90_000;
      server.on('upgrade', (request, socket, head) => {
        upgraded.add(socket);
        socket.on('close', () => upgraded.delete(socket));
        if (authenticate(request, options.tokens)) options.upgrade(request, socket, head);
        else socket.end('HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n');
      });
      return listenOn(server, listeners[i]);
    }),
  );
  return {
    ports: servers.map((server) => {
      const address = server.address();
      return typeof address === 'object' && address ? address.port : 0;
    }),
    async close() {
      for (const socket of upgraded) socket.destroy();
      await Promise.all(
        servers.map((server) => {
          server.closeAllConnections();
          return new Promise<void>((resolve) => server.close(() => resolve()));
        }),
      );
    },
  };
}

function listenOn(server: Server, where: Listener | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Whom a request comes from: a client certificate's subject, or a service account's token. Null: nobody known. */
export function authenticate(request: IncomingMessage, tokens: TokenIssuer): User | null {
  const bearer = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '');
  if (bearer) return tokens.verify(bearer[1] ?? '');
  const socket = request.socket as TLSSocket;
  return socket.authorized ? certificateUser(socket) : null;
}

function certificateUser(socket: TLSSocket): User {
  const subject = socket.getPeerCertificate().subject;
  const organizations = subject?.O as string | string[] | undefined;
  const groups =
    organizations === undefined ? [] : Array.isArray(organizations) ? organizations : [organizations];
  const name = subject?.CN as string | string[] | undefined;
  return { name: (Array.isArray(name) ? name[0] : name) ?? '', groups: [...groups, 'system:authenticated'] };
}

async function answer(
  options: HttpServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const path = (request.url ?? '/').split('?')[0] ?? '/';
  const user =
    authenticate(request, options.tokens) ??
    (OPEN_PATHS.has(path) ? { name: 'system:anonymous', groups: [] } : null);
  if (!user) {
    request.resume();
    send(request, response, {
      status: 401,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(new StatusError(401, 'Unauthorized', 'Unauthorized')),
    });
    return;
  }
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size <= MOST_BODY_BYTES) chunks.push(chunk);
    }
  } catch {
    // The client went away in the middle of its request: there is nobody to answer.
    return;
  }
  if (size > MOST_BODY_BYTES) {
    const error = new StatusError(
      413,
      'RequestEntityTooLarge',
      `Request entity too large: limit is ${MOST_BODY_BYTES}`,
    );
    send(request, response, {
      status: 413,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(error),
    });
    return;
  }
  const outgoing = await options.handle({
    method: request.method ?? 'GET',
    url: request.url ?? '/',
    headers: request.headers as Record<string, string | undefined>,
    body: Buffer.concat(chunks),
    user,
    signal: gone.signal,
  });
  send(request, response, outgoing);
}

function send(request: IncomingMessage, response: ServerResponse, outgoing: OutgoingResponse): void {
  const { status, headers, body } = outgoing;
  const gzip =
    /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? '')) &&
    headers['content-encoding'] === undefined;
  if (typeof body === 'string' || Buffer.isBuffer(body)) {
    const plain = typeof body === 'string' ? Buffer.from(body) : body;
    if (gzip && plain.length > GZIP_BYTES) {
      const packed = gzipSync(plain, { level: 1 });
      response
        .writeHead(status, { ...headers, 'content-encoding': 'gzip', 'content-length': packed.length })
        .end(packed);
    } else response.writeHead(status, { ...headers, 'content-length': plain.length }).end(plain);
    return;
  }
  response.writeHead(status, headers);
  response.flushHeaders();
  body.on('error', () => response.destroy());
  response.on('close', () => body.destroy());
  body.pipe(response);
}
