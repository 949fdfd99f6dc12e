import { createHash } from 'node:crypto';
import { PROMETHEUS_TEXT } from '../../lib/healthcheck-metrics.ts';
import { trimEnd } from '../../lib/trim-end.ts';
import { contentTypeOf, encode } from '../requests/encode.ts';
import { ANY_OBJECT, negotiate, noRepresentation, parseAccept } from '../requests/negotiation.ts';
import type { PlainResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import { jsonResponse, respond, respondNegotiated } from '../requests/responses.ts';
import type { ApiServices } from '../services.ts';
import { methodNotAllowed, StatusError } from '../status-error.ts';
import { aggregatedDiscovery, groupDiscovery, groupList, resourceList } from './discovery.ts';
import { healthcheckMetrics, healthResponse } from './health.ts';
import { zpageResponse } from './zpages.ts';

type Respond = (
  services: ApiServices,
  context: RequestContext,
) => PlainResponse | null | Promise<PlainResponse | null>;

/** Paths with a fixed response. */
const PATHS: Readonly<Record<string, Respond>> = {
  '/': (services) => jsonResponse(200, { paths: paths(services) }),
  '/version': versionResponse,
  '/statusz': (services, context) => zpageResponse('Statusz', services, context),
  '/flagz': (services, context) => zpageResponse('Flagz', services, context),
  '/api': groupsResponse,
  '/apis': groupsResponse,
  '/metrics': async (services) => ({
    status: 200,
    headers: { 'content-type': PROMETHEUS_TEXT },
    body: await services.metrics.render(
      services.store,
      services.registry.all().flatMap(({ kind, stored }) => (stored ? [kind.collection] : [])),
    ),
  }),
  '/metrics/slis': (services) => ({
    status: 200,
    headers: { 'content-type': PROMETHEUS_TEXT },
    body: healthcheckMetrics(services),
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
  '/openapi/v3': async ({ schema, aggregator }) => {
    const index = (await schema.openapiIndex()) as { paths: object };
    return jsonResponse(200, { ...index, paths: { ...index.paths, ...(await aggregator.openapiPaths()) } });
  },
};

/**
 * Answers version, health, metrics, discovery and OpenAPI; null for all other paths. Throws StatusError 405 for writes.
 */
export async function nonResource(
  services: ApiServices,
  context: RequestContext,
): Promise<PlainResponse | null> {
  const { info, request } = context;
  if (info.isResourceRequest) return null;
  const path = trimEnd(info.path, '/') || '/';
  const health = healthResponse(services, context);
  if (health) return health;
  const answer = find(services, path);
  if (!answer) return null;
  if (request.method !== 'GET') {
    throw methodNotAllowed('the server does not allow this method on the requested resource');
  }
  return answer(services, context);
}

/** Returns the handler of GET for a path; null for an unknown path. */
function find(services: ApiServices, path: string): Respond | null {
  if (Object.hasOwn(PATHS, path)) return PATHS[path] ?? null;
  if (path.startsWith('/openapi/v3/')) {
    const name = path.slice('/openapi/v3/'.length);
    return (_services, context) => openapiV3(services, context, name);
  }
  const [, root, first, second, ...rest] = path.split('/');
  if (rest.length > 0 || !first) return null;
  const discovered = (object: object | null): Respond => {
    return (_services, context) => {
      if (object) return respondNegotiated(services.schema, context, 200, object);
      throw new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
    };
  };
  // An unknown version of a known group is answered with a Status, an unknown group with a page.
  if (root === 'api' && second === undefined) return discovered(resourceList(services.registry, '', first));
  if (root !== 'apis') return null;
  const group = groupDiscovery(services.registry, first, services.aggregator.versions());
  if (!group) return null;
  return discovered(second === undefined ? group : resourceList(services.registry, first, second));
}

/** Returns the version as JSON, its only form. Throws StatusError 406 if the client does not accept JSON. */
function versionResponse({ version }: ApiServices, context: RequestContext): PlainResponse {
  const accepted = parseAccept(context.request.headers['accept'] || '*/*');
  const isAccepted = ({ type, subtype }: (typeof accepted)[number]) =>
    ['*/*', 'application/*', 'application/json'].includes(`${type}/${subtype}`);
  if (!accepted.some(isAccepted)) {
    throw noRepresentation('application/json');
  }
  const { major, minor, gitVersion } = version;
  return jsonResponse(200, {
    major,
    minor,
    emulationMajor: major,
    emulationMinor: minor,
    minCompatibilityMajor: major,
    minCompatibilityMinor: String(Number(minor) - 1),
    gitVersion,
    gitCommit: '',
    gitTreeState: 'clean',
    buildDate: '1970-01-01T00:00:00Z',
    goVersion: '',
    compiler: '',
    platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
  });
}

/** Returns a document of the token issuer, which verifiers may cache for an hour. */
const publicDocument = (contentType: string, value: object): PlainResponse => ({
  status: 200,
  headers: { 'content-type': contentType, 'cache-control': 'public, max-age=3600' },
  body: JSON.stringify(value),
});

/** Returns the groups of the API: with all their resources if the client prefers that, else by name. */
function groupsResponse(services: ApiServices, context: RequestContext): PlainResponse {
  const isCore = trimEnd(context.info.path, '/') === '/api';
  const form = negotiate(context, { ...ANY_OBJECT, aggregated: true });
  if (form.aggregated) {
    return cacheable(
      context,
      encode(
        services.schema,
        form,
        aggregatedDiscovery(services.registry, isCore, services.aggregator.versions()),
      ),
      `${contentTypeOf(form.format)};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`,
    );
  }
  const plain = isCore
    ? { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] }
    : groupList(services.registry, services.aggregator.versions());
  return respond(services.schema, form, 200, plain);
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

function cacheable(context: RequestContext, body: string | Buffer, contentType: string): PlainResponse {
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
