import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { type Duplex, Readable } from 'node:stream';
import { connect as tlsConnect } from 'node:tls';
import { gunzipSync } from 'node:zlib';
import { messageOf } from '../../lib/errors.ts';
import { joinSockets } from '../joined-sockets.ts';
import { forwardedHeaders, isConnectionHeader, upgradeHeaders } from '../requests/forwarded-headers.ts';
import type { OutgoingResponse, PlainResponse } from '../requests/request.ts';
import type { ResourceVerb } from '../routes/resource-verb.ts';
import type { ApiServices, ResourceContext, Subresource } from '../services.ts';
import { StatusError } from '../status-error.ts';
import { rewriteHtmlLinks, rewriteProxyUrl } from './html-links.ts';
import { admitConnect } from './node-streams.ts';
import { nodeLocation, type ProxyLocation, podLocation, serviceLocation } from './proxy-location.ts';

const PROXY_VERBS: readonly ResourceVerb[] = ['create', 'delete', 'get', 'patch', 'update'];
/** Longer HTML is forwarded unchanged: rewriting takes the server's time. */
const MAX_REWRITTEN_BYTES = 2 * 1024 * 1024;

type Locate = (services: ApiServices, context: ResourceContext) => ProxyLocation;

/** Builds a subresource that forwards requests to a server in the cluster, as upstream's UpgradeAwareHandler. */
function proxySubresource(kind: string, locate: Locate): Subresource {
  return {
    name: 'proxy',
    kind: { group: '', version: 'v1', kind },
    handlers: {},
    connectVerbs: PROXY_VERBS,
    async connect(context, services) {
      await admitConnect(services, context, kind);
      return proxy(services, context, locate(services, context));
    },
  };
}

export const POD_PROXY = proxySubresource('PodProxyOptions', podLocation);
export const SERVICE_PROXY = proxySubresource('ServiceProxyOptions', serviceLocation);

/** A node's own server (kubelet) or, with `NAME:PORT`, any other server on the node. */
export const NODE_PROXY: Subresource = {
  name: 'proxy',
  kind: { group: '', version: 'v1', kind: 'NodeProxyOptions' },
  handlers: {},
  connectVerbs: PROXY_VERBS,
  async connect(context, services) {
    await admitConnect(services, context, 'NodeProxyOptions');
    const { location, name } = nodeLocation(services, context);
    if (location) return proxy(services, context, location);
    return slashRedirect(context) ?? services.nodes.nodeProxy({ ...context, name });
  },
};

/** Forwards a request and returns the response; redirects and links point through the proxy again. */
export async function proxy(
  services: ApiServices,
  context: ResourceContext,
  location: ProxyLocation,
): Promise<OutgoingResponse> {
  const { request, info } = context;
  const redirect = slashRedirect(context);
  if (redirect) return redirect;
  const connection = await dial(services, location);
  const outgoing = httpRequest({
    createConnection: () => connection as never,
    method: request.method,
    path: `${info.subpath || '/'}${queryOf(context)}`,
    headers: proxiedHeaders(context, location),
    setHost: false,
  });
  context.signal.addEventListener('abort', () => outgoing.destroy());
  return request.upgrade
    ? upgraded(context, outgoing)
    : plain(context, outgoing, location, info.subpath || '/');
}

/** Answers a path that ends with "proxy": relative links need the slash (kubernetes issue 4958). */
function slashRedirect(context: ResourceContext): PlainResponse | null {
  const { request, info } = context;
  if (info.subpath !== '' || request.upgrade) return null;
  if (request.method !== 'GET' && request.method !== 'HEAD') return null;
  return { status: 301, headers: { location: `${info.path}/${queryOf(context)}` }, body: '' };
}

/** Returns the unmodified query, with its question mark. */
function queryOf({ request }: ResourceContext): string {
  const at = request.url.indexOf('?');
  return at < 0 ? '' : request.url.slice(at);
}

async function dial(services: ApiServices, location: ProxyLocation): Promise<Duplex> {
  const socket = await services.dialer.dial(location.host, location.port, location.node);
  if (location.scheme === 'http') return socket;
  // As upstream: a pod's certificate has no name that could be verified.
  return new Promise((resolve, reject) => {
    const secured = tlsConnect({ socket, rejectUnauthorized: false }, () => resolve(secured));
    secured.once('error', (error) => reject(unreachable(error)));
  });
}

const UNANSWERED = new Error('the connection was closed without an answer');

const unreachable = (error: unknown) =>
  new StatusError(503, 'ServiceUnavailable', `error trying to reach service: ${messageOf(error)}`, {});

function hostOf({ host, port }: ProxyLocation): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function proxiedHeaders({ request, info }: ResourceContext, location: ProxyLocation): Record<string, string> {
  const { headers, upgrade } = request;
  return {
    ...(upgrade ? upgradeHeaders(headers) : forwardedHeaders(headers)),
    host: hostOf(location),
    'x-forwarded-uri': info.path,
    'x-forwarded-host': headers['host'] ?? headers[':authority'] ?? '',
    'x-forwarded-proto': 'https',
  };
}

async function plain(
  context: ResourceContext,
  outgoing: ClientRequest,
  location: ProxyLocation,
  subpath: string,
): Promise<PlainResponse> {
  const { request, info } = context;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.on('response', resolve);
    outgoing.on('error', (error) => reject(unreachable(error)));
    // Also behind a 101 that was not asked for, about which there is no other event.
    outgoing.on('close', () => reject(unreachable(UNANSWERED)));
    if (request.method === 'GET' || request.method === 'HEAD') outgoing.end();
    else {
      request
        .stream()
        .on('error', (error) => outgoing.destroy(error))
        .pipe(outgoing);
    }
  });
  const headers: Record<string, string | readonly string[]> = {};
  for (const [name, value] of Object.entries(response.headers)) {
    if (value !== undefined && !isConnectionHeader(name)) headers[name] = value;
  }
  const prefix = info.path.slice(0, info.path.length - subpath.length) || info.path;
  const own = request.headers['host'] ?? '';
  const rewrite = (url: string) => rewriteProxyUrl(url, hostOf(location), own, prefix);
  const status = response.statusCode ?? 502;
  if (typeof headers['location'] === 'string') headers['location'] = rewrite(headers['location']);
  const isHtml = /^text\/html\b/i.test(response.headers['content-type'] ?? '');
  const encoding = response.headers['content-encoding'] ?? '';
  const length = Number(response.headers['content-length'] ?? 0);
  if (!isHtml || length > MAX_REWRITTEN_BYTES || (encoding !== '' && encoding !== 'gzip')) {
    return { status, headers, body: response };
  }
  return rewritten({ status, headers, body: response }, encoding === 'gzip', rewrite);
}

/** Rewrites the links of a response, which is read as a whole: a link may be split between chunks. */
async function rewritten(
  answer: PlainResponse,
  isPacked: boolean,
  rewrite: (url: string) => string,
): Promise<PlainResponse> {
  const source = (answer.body as IncomingMessage)[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const chunks: Buffer[] = [];
  let size = 0;
  for (;;) {
    const next = await source.next();
    if (next.done) break;
    chunks.push(next.value);
    size += next.value.length;
    if (size > MAX_REWRITTEN_BYTES) return { ...answer, body: Readable.from(allOf(chunks, source)) };
  }
  const bytes = Buffer.concat(chunks);
  const plainBytes = isPacked ? unpacked(bytes) : bytes;
  if (plainBytes === null) return { ...answer, body: bytes };
  const { 'content-length': _length, 'content-encoding': _encoding, ...headers } = answer.headers;
  // Latin-1 preserves every byte; URLs are ASCII.
  const text = rewriteHtmlLinks(plainBytes.toString('latin1'), rewrite);
  return { status: answer.status, headers, body: Buffer.from(text, 'latin1') };
}

async function* allOf(chunks: readonly Buffer[], rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  yield* chunks;
  for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value;
}

/** Returns the contents of a gzip file; null: it is none, or its contents are too long. */
function unpacked(bytes: Buffer): Buffer | null {
  if (bytes.length === 0) return bytes;
  try {
    return gunzipSync(bytes, { maxOutputLength: MAX_REWRITTEN_BYTES });
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code === 'ERR_BUFFER_TOO_LARGE' || code.startsWith('Z_')) return null;
    throw error;
  }
}

/** Handles an upgrade: joins the two connections after the backend's 101. */
function upgraded(context: ResourceContext, outgoing: ClientRequest): Promise<OutgoingResponse> {
  const { upgrade } = context.request;
  return new Promise((resolve, reject) => {
    outgoing.on('upgrade', (response: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (!upgrade) return;
      resolve('upgraded');
      joinSockets(upgrade.socket, upgrade.head, response, socket, head);
    });
    outgoing.on('response', (response) => {
      const type = response.headers['content-type'];
      resolve({
        status: response.statusCode ?? 502,
        headers: type === undefined ? {} : { 'content-type': type },
        body: Readable.from(response),
      });
    });
    outgoing.on('error', (error) => reject(unreachable(error)));
    outgoing.on('close', () => reject(unreachable(UNANSWERED)));
    outgoing.end();
  });
}
