import { createHash } from 'node:crypto';
import type { IncomingRequest, OutgoingResponse } from './api-request.ts';
import { aggregatedDiscovery, groupDiscovery, groupList, resourceList } from './discovery.ts';
import type { ApiHandlerOptions } from './handler-options.ts';
import { jsonResponse } from './negotiation.ts';

/** Version, health, discovery and OpenAPI; null for everything else. */
export async function nonResource(
  options: ApiHandlerOptions,
  request: IncomingRequest,
  path: string,
  query: URLSearchParams,
): Promise<OutgoingResponse | null> {
  const { kinds, schema } = options;
  const accept = request.headers['accept'] ?? '';
  switch (path) {
    case '/':
      return jsonResponse(200, {
        paths: [
          '/api',
          '/api/v1',
          '/apis',
          '/healthz',
          '/livez',
          '/metrics',
          '/openapi/v3',
          '/readyz',
          '/version',
        ],
      });
    case '/version':
      return jsonResponse(200, {
        ...options.version,
        platform: 'linux/amd64',
        goVersion: '',
        compiler: '',
        gitCommit: '',
        gitTreeState: 'clean',
        buildDate: '1970-01-01T00:00:00Z',
      });
    case '/healthz':
    case '/livez':
    case '/readyz':
      return {
        status: 200,
        headers: { 'content-type': 'text/plain; charset=utf-8' },
        body: query.has('verbose') ? `[+]ping ok\n[+]store ok\n${path.slice(1)} check passed\n` : 'ok',
      };
    case '/api':
    case '/apis': {
      const aggregated = /as=APIGroupDiscoveryList/.test(accept)
        ? /v=(v2beta1|v2)\b/.exec(accept)?.[1]
        : undefined;
      if (aggregated === 'v2' || aggregated === 'v2beta1') {
        return cacheable(
          request,
          aggregatedDiscovery(kinds, path === '/api', aggregated),
          `application/json;g=apidiscovery.k8s.io;v=${aggregated};as=APIGroupDiscoveryList`,
        );
      }
      return jsonResponse(
        200,
        path === '/api'
          ? { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] }
          : groupList(kinds),
      );
    }
    case '/metrics':
      return {
        status: 200,
        headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        body: await options.metrics.render(
          options.store,
          kinds.map((kind) => kind.collection),
        ),
      };
    case '/openapi/v3':
      return jsonResponse(200, await schema.openapiIndex());
  }
  if (path.startsWith('/openapi/v3/')) {
    const document = await schema.openapiDocument(path.slice('/openapi/v3/'.length));
    if (!document) return null;
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      etag: `"${document.hash}"`,
      vary: 'Accept-Encoding',
    };
    if (query.get('hash') === document.hash) {
      headers['cache-control'] = 'public, immutable';
      headers['expires'] = new Date(options.clock.now() + 365 * 86_400_000).toUTCString();
    }
    if (request.headers['if-none-match'] === headers['etag']) return { status: 304, headers, body: '' };
    const gzip = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
    if (gzip) headers['content-encoding'] = 'gzip';
    return { status: 200, headers, body: gzip ? document.gzip : document.json };
  }
  const list = /^\/api\/(v1)$|^\/apis\/([^/]+)\/([^/]+)$/.exec(path);
  if (list) {
    const found = list[1]
      ? resourceList(kinds, '', list[1])
      : resourceList(kinds, list[2] ?? '', list[3] ?? '');
    return found ? jsonResponse(200, found) : null;
  }
  const group = /^\/apis\/([^/]+)$/.exec(path);
  const found = group ? groupDiscovery(kinds, group[1] ?? '') : null;
  return found ? jsonResponse(200, found) : null;
}

function cacheable(request: IncomingRequest, value: object, contentType: string): OutgoingResponse {
  const body = JSON.stringify(value);
  const etag = `"${createHash('sha256').update(body).digest('hex').slice(0, 32)}"`;
  const headers = { 'content-type': contentType, etag, vary: 'Accept', 'cache-control': 'public' };
  return request.headers['if-none-match'] === etag
    ? { status: 304, headers, body: '' }
    : { status: 200, headers, body };
}
