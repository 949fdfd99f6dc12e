import { createHash } from 'node:crypto';
import { ALL_FORMATS, negotiate } from '../requests/negotiation.ts';
import type { PlainResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import { jsonResponse, respond } from '../requests/responses.ts';
import type { ApiServices } from '../services.ts';
import { methodNotAllowed } from '../status-error.ts';
import { aggregatedDiscovery, groupDiscovery, groupList, resourceList } from './discovery.ts';
import { healthResponse } from './health.ts';

type Respond = (services: ApiServices, context: RequestContext) => PlainResponse | Promise<PlainResponse>;

/** Paths with one fixed answer each. */
const PATHS: Readonly<Record<string, Respond>> = {
  '/': (services) => jsonResponse(200, { paths: paths(services) }),
  '/version': (services) =>
    jsonResponse(200, {
      ...services.version,
      platform: 'linux/amd64',
      goVersion: '',
      compiler: '',
      gitCommit: '',
      gitTreeState: 'clean',
      buildDate: '1970-01-01T00:00:00Z',
    }),
  '/api': groupsResponse,
  '/apis': groupsResponse,
  '/metrics': async (services) => ({
    status: 200,
    headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    body: await services.metrics.render(
      services.store,
      services.registry.all().flatMap(({ kind, stored }) => (stored ? [kind.collection] : [])),
    ),
  }),
  '/.well-known/openid-configuration': ({ tokens }, { request }) =>
    publicDocument('application/json', {
      issuer: tokens.issuer,
      jwks_uri: `https://${request.headers['host'] ?? request.headers[':authority'] ?? new URL(tokens.issuer).host}/openid/v1/jwks`,
      response_types_supported: ['id_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['ES256'],
    }),
  '/openid/v1/jwks': ({ tokens }) => publicDocument('application/jwk-set+json', tokens.keySet),
  '/openapi/v2': (services, context) => services.swagger(services, context),
  '/openapi/v3': async (services) => jsonResponse(200, await services.schema.openapiIndex()),
};

/** Version, health, metrics, discovery and OpenAPI; null for everything else. Throws StatusError 405 for writes. */
export async function nonResource(
  services: ApiServices,
  context: RequestContext,
): Promise<PlainResponse | null> {
  const { info, request } = context;
  if (info.isResourceRequest) return null;
  const path = info.path.replace(/\/+$/, '') || '/';
  const response = await answer(services, context, path);
  const isHealth = /^\/(healthz|livez|readyz)(\/|$)/.test(path);
  if (response && request.method !== 'GET' && !isHealth) {
    throw methodNotAllowed('the server does not allow this method on the requested resource');
  }
  return response;
}

async function answer(
  services: ApiServices,
  context: RequestContext,
  path: string,
): Promise<PlainResponse | null> {
  const fixed = Object.hasOwn(PATHS, path) ? PATHS[path] : undefined;
  if (fixed) return fixed(services, context);
  const health = healthResponse(services, context);
  if (health) return health;
  if (path.startsWith('/openapi/v3/')) return openapiV3(services, context, path.slice('/openapi/v3/'.length));
  const [, root, first, second, ...rest] = path.split('/');
  if (rest.length > 0) return null;
  if (root === 'api' && first && second === undefined) {
    return discoveryResponse(services, context, resourceList(services.registry, '', first));
  }
  if (root !== 'apis' || !first) return null;
  return discoveryResponse(
    services,
    context,
    second === undefined
      ? groupDiscovery(services.registry, first)
      : resourceList(services.registry, first, second),
  );
}

/** A document of the token issuer, which verifiers may keep for an hour. */
const publicDocument = (contentType: string, value: object): PlainResponse => ({
  status: 200,
  headers: { 'content-type': contentType, 'cache-control': 'public, max-age=3600' },
  body: JSON.stringify(value),
});

function discoveryResponse(
  services: ApiServices,
  context: RequestContext,
  object: object | null,
): PlainResponse | null {
  if (!object) return null;
  return respond(
    services.schema,
    negotiate(context, { formats: ALL_FORMATS, transforms: false }),
    200,
    object,
  );
}

/** The groups of the API: aggregated where the client accepts that first, else by name. */
function groupsResponse(services: ApiServices, context: RequestContext): PlainResponse {
  const isCore = context.info.path.replace(/\/+$/, '') === '/api';
  const accept = context.request.headers['accept'] ?? '';
  const version = /as=APIGroupDiscoveryList/.test(accept) ? /v=(v2beta1|v2)\b/.exec(accept)?.[1] : undefined;
  if (version === 'v2' || version === 'v2beta1') {
    return cacheable(
      context,
      aggregatedDiscovery(services.registry, isCore, version),
      `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`,
    );
  }
  const plain = isCore
    ? { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] }
    : groupList(services.registry);
  const response = discoveryResponse(services, context, plain);
  return response ?? jsonResponse(200, plain);
}

async function openapiV3(
  services: ApiServices,
  context: RequestContext,
  path: string,
): Promise<PlainResponse | null> {
  const document = await services.schema.openapiDocument(path);
  if (!document) return null;
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    etag: `"${document.hash}"`,
    vary: 'Accept-Encoding',
  };
  if (context.query.get('hash') === document.hash) {
    headers['cache-control'] = 'public, immutable';
    headers['expires'] = new Date(services.clock.now() + 365 * 86_400_000).toUTCString();
  }
  if (context.request.headers['if-none-match'] === headers['etag']) return { status: 304, headers, body: '' };
  const gzip = /\bgzip\b/.test(context.request.headers['accept-encoding'] ?? '');
  if (gzip) headers['content-encoding'] = 'gzip';
  return { status: 200, headers, body: gzip ? document.gzip : document.json };
}

function cacheable(context: RequestContext, value: object, contentType: string): PlainResponse {
  const body = JSON.stringify(value);
  const etag = `"${createHash('sha256').update(body).digest('hex').slice(0, 32)}"`;
  const headers = { 'content-type': contentType, etag, vary: 'Accept', 'cache-control': 'public' };
  return context.request.headers['if-none-match'] === etag
    ? { status: 304, headers, body: '' }
    : { status: 200, headers, body };
}

function paths(services: ApiServices): string[] {
  const found = new Set(Object.keys(PATHS).filter((path) => path !== '/'));
  for (const path of ['/healthz', '/livez', '/readyz']) found.add(path);
  for (const { group, version } of services.registry.groupVersions()) {
    if (group !== '') found.add(`/apis/${group}`);
    found.add(group === '' ? `/api/${version}` : `/apis/${group}/${version}`);
  }
  return [...found].sort();
}
