import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { listenTcpIn, type NetnsRef } from '../../../kernel/netns.ts';

/** A registry (OCI distribution-spec 1.1, pulls only). */
export interface TestRegistry {
  /** "ADDRESS:PORT" */
  readonly host: string;
  /** Requested paths, in order. */
  readonly requests: string[];
  /** Manifests by "REPOSITORY:TAG". */
  readonly tags: Map<string, string>;
  /** Contents by digest. */
  readonly blobs: Map<string, Buffer>;
  /** Blobs whose next responses end after this number of bytes. */
  readonly breaks: Map<string, number[]>;
  /** Required credentials; null: anonymous access. With `token`, requires a bearer token instead of a password. */
  access: { readonly user: string; readonly password: string; readonly token: boolean } | null;
  /** Status of every response, if set. */
  failure: number | null;
  close(): Promise<void>;
}

/**
 * Starts a registry. With `tls`, serves HTTPS, at an address that must not be loopback: registries on loopback are
 * contacted without TLS. `netns`: in another network namespace.
 */
export async function startRegistry(
  tls?: { readonly cert: string; readonly key: string; readonly address: string },
  netns?: NetnsRef,
): Promise<TestRegistry> {
  const address = tls?.address ?? '127.0.0.1';
  const handle = (request: IncomingMessage, response: ServerResponse) => answer(registry, request, response);
  const server = tls ? createHttpsServer(tls, handle) : createHttpServer(handle);
  if (netns === undefined) server.listen(0, address);
  else server.listen({ fd: listenTcpIn(netns, address, 0) });
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const registry: TestRegistry = {
    host: `${address}:${port}`,
    requests: [],
    tags: new Map(),
    blobs: new Map(),
    breaks: new Map(),
    access: null,
    failure: null,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return registry;
}

function answer(registry: TestRegistry, request: IncomingMessage, response: ServerResponse): void {
  const url = request.url ?? '/';
  registry.requests.push(url);
  const refuse = (status: number, code: string, headers: Record<string, string> = {}) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify({ errors: [{ code, message: code.toLowerCase() }] }));
  };
  if (registry.failure !== null) {
    refuse(registry.failure, 'UNAVAILABLE');
    return;
  }
  const { access } = registry;
  if (access) {
    const { authorization } = request.headers;
    const basic = `Basic ${Buffer.from(`${access.user}:${access.password}`).toString('base64')}`;
    if (url.startsWith('/token')) {
      if (authorization !== basic) refuse(401, 'UNAUTHORIZED');
      else response.end(JSON.stringify({ token: 'let-me-in' }));
      return;
    }
    if (authorization !== (access.token ? 'Bearer let-me-in' : basic)) {
      const challenge = access.token
        ? `Bearer realm="http://${registry.host}/token",service="test",scope="repository:x:pull"`
        : 'Basic realm="test"';
      refuse(401, 'UNAUTHORIZED', { 'www-authenticate': challenge });
      return;
    }
  }
  const [, repository = '', kind, reference = ''] =
    /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(url.replace(/\?.*/, '')) ?? [];
  const digest =
    kind === 'manifests' ? (registry.tags.get(`${repository}:${reference}`) ?? reference) : reference;
  const data = registry.blobs.get(digest);
  if (!data) {
    refuse(404, kind === 'blobs' ? 'BLOB_UNKNOWN' : 'MANIFEST_UNKNOWN');
    return;
  }
  const start = Number(/^bytes=([0-9]+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  const { mediaType } = kind === 'manifests' ? (JSON.parse(data.toString()) as { mediaType?: string }) : {};
  response.writeHead(start > 0 ? 206 : 200, {
    'content-type': mediaType ?? 'application/octet-stream',
    'content-length': data.length - start,
  });
  const most = registry.breaks.get(digest)?.shift();
  if (most === undefined) {
    response.end(data.subarray(start));
    return;
  }
  response.write(data.subarray(start, start + most), () => response.destroy());
}
