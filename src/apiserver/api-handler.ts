import { createHash } from 'node:crypto';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type ApiPath, type IncomingRequest, type OutgoingResponse, parseApiPath } from './api-request.ts';
import { readDeleteOptions } from './delete-options.ts';
import { aggregatedDiscovery, groupDiscovery, groupList, REVIEWS, resourceList } from './discovery.ts';
import { applyJsonPatch, applyMergePatch } from './json-patch.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { readVersionOptions } from './list-options.ts';
import { decodeBody, jsonResponse } from './negotiation.ts';
import { type ApiObject, at, isObject, type JsonObject, textAt } from './object.ts';
import { checkBody, type ResourceStore } from './resource-store.ts';
import { review } from './reviews.ts';
import { scaleOf, withScale } from './scale.ts';
import type { SchemaService, TableService } from './schema-service.ts';
import { applyServerSide } from './server-side-apply.ts';
import type { TokenIssuer } from './service-account-tokens.ts';
import { badRequest, methodNotAllowed, StatusError } from './status-error.ts';
import type { Store, StoredObject } from './store.ts';
import { applyStrategicPatch } from './strategic-patch.ts';
import { tableRequest } from './table.ts';
import { watch } from './watch.ts';

export interface ApiHandlerOptions {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly kinds: readonly Kind[];
  readonly schema: SchemaService;
  readonly tables: TableService;
  readonly tokens: TokenIssuer;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  /** Aborts when the server closes: watches end. */
  readonly closing: AbortSignal;
  readonly version: { readonly gitVersion: string; readonly major: string; readonly minor: string };
  /** Carries out requests that a node answers (logs, proxies); upgrades take another way. */
  readonly nodeRequest: (path: ApiPath, request: IncomingRequest) => Promise<OutgoingResponse>;
}

/** Answers every request that is no upgrade. Never throws: refusals become Status objects. */
export function createApiHandler(
  options: ApiHandlerOptions,
): (request: IncomingRequest) => Promise<OutgoingResponse> {
  return async (request) => {
    try {
      return await route(options, request);
    } catch (error) {
      if (error instanceof StatusError) return statusResponse(error);
      options.logger.error({ method: request.method, url: request.url, err: error }, 'request failed');
      return statusResponse(
        new StatusError(500, 'InternalError', `Internal error occurred: ${messageOf(error)}`),
      );
    }
  };
}

export function statusResponse(error: StatusError): OutgoingResponse {
  const retry = error.details?.['retryAfterSeconds'];
  return {
    status: error.code,
    headers: {
      'content-type': 'application/json',
      ...(typeof retry === 'number' ? { 'retry-after': String(retry) } : {}),
    },
    body: JSON.stringify(error),
  };
}

async function route(options: ApiHandlerOptions, request: IncomingRequest): Promise<OutgoingResponse> {
  const url = new URL(request.url, 'http://localhost');
  const path = url.pathname.replace(/\/+$/, '') || '/';
  const plain = await nonResource(options, request, path, url.searchParams);
  if (plain) return plain;
  const target = parseApiPath(path);
  if (!target) throw new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
  if (REVIEWS.some((review) => review.group === target.group && review.plural === target.plural)) {
    if (request.method !== 'POST') throw methodNotAllowed('reviews can only be created');
    return jsonResponse(
      201,
      await review(options, target, decodeBody(request, options.schema).object, request),
    );
  }
  const kind = options.kinds.find(
    (candidate) =>
      candidate.group === target.group &&
      candidate.version === target.version &&
      candidate.plural === target.plural,
  );
  if (!kind) throw new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
  if (target.subresource !== '') return subresource(options, kind, target, request, url.searchParams);
  return target.name === ''
    ? collection(options, kind, target, request, url.searchParams)
    : single(options, kind, target, request, url.searchParams);
}

/** Version, health, discovery and OpenAPI; null for everything else. */
async function nonResource(
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
        paths: ['/api', '/api/v1', '/apis', '/healthz', '/livez', '/openapi/v3', '/readyz', '/version'],
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
    case '/openapi/v3':
      return jsonResponse(200, schema.openapiIndex());
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

async function collection(
  options: ApiHandlerOptions,
  kind: Kind,
  target: ApiPath,
  request: IncomingRequest,
  query: URLSearchParams,
): Promise<OutgoingResponse> {
  const { resources } = options;
  const scope = {
    ...(target.namespace === '' ? {} : { namespace: target.namespace }),
    ...text(query, 'labelSelector'),
    ...text(query, 'fieldSelector'),
  };
  switch (request.method) {
    case 'GET': {
      const table = tableRequest(request, options.tables, kind, query, new Date(options.clock.now()));
      const watching = query.get('watch') === 'true' || query.get('watch') === '1';
      const versions = readVersionOptions(query, watching);
      if (watching) {
        const seconds = Number(query.get('timeoutSeconds') ?? 0);
        const body = watch(options.store, options.clock, kind, {
          filter: resources.filter(kind, scope),
          resourceVersion: query.get('resourceVersion'),
          sendInitialEvents: query.get('sendInitialEvents') === 'true',
          bookmarks: query.get('allowWatchBookmarks') === 'true',
          timeoutMs: (seconds > 0 ? seconds : 1800 + options.random() * 1800) * 1000,
          encode: table
            ? (object, first) => JSON.stringify(table.single(presented(kind, object), first))
            : options.kinds.some((other) => other !== kind && other.collection === kind.collection)
              ? (object) => JSON.stringify(presented(kind, object))
              : null,
          signal: AbortSignal.any([request.signal, options.closing]),
        });
        return { status: 200, headers: { 'content-type': 'application/json' }, body };
      }
      await waitForVersion(options, versions.atLeast);
      const limit = Number(query.get('limit') ?? 0);
      const page = resources.list(kind, {
        ...scope,
        ...(limit > 0 && !versions.any ? { limit } : {}),
        ...(versions.exactly === null ? {} : { exactly: versions.exactly }),
        ...text(query, 'continue'),
      });
      const metadata = {
        resourceVersion: String(page.version),
        ...(page.continue ? { continue: page.continue } : {}),
        ...(page.remaining === null ? {} : { remainingItemCount: page.remaining }),
      };
      if (table)
        return jsonResponse(
          200,
          table.list(
            page.items.map((item) => presented(kind, item.object)),
            metadata,
          ),
        );
      const items = page.items.map((item) => presentedJson(kind, item.object, item.json)).join(',');
      const head = `{"kind":"${kind.kind}List","apiVersion":"${apiVersionOf(kind)}","metadata":${JSON.stringify(metadata)},"items":[`;
      return { status: 200, headers: { 'content-type': 'application/json' }, body: `${head}${items}]}\n` };
    }
    case 'POST': {
      const body = decodeBody(request, options.schema);
      const namespace = kind.namespaced ? target.namespace || 'default' : '';
      const warnings = checkFields(options, kind, body, query);
      const object = checkBody(kind, namespace, body.object);
      const stored = resources.create(kind, namespace, object, query.has('dryRun'));
      return objectResponse(options, kind, 201, stored, request, query, warnings);
    }
    case 'DELETE': {
      const body = decodeBody(request, options.schema, true);
      const deleteOptions = readDeleteOptions(body.object, query);
      const page = resources.list(kind, scope);
      for (const item of page.items) {
        resources.delete(
          kind,
          item.object.metadata.namespace ?? '',
          item.object.metadata.name ?? '',
          deleteOptions,
        );
      }
      const items = page.items.map((item) => item.json).join(',');
      const head = `{"kind":"${kind.kind}List","apiVersion":"${apiVersionOf(kind)}","metadata":{"resourceVersion":"${options.store.version}"},"items":[`;
      return { status: 200, headers: { 'content-type': 'application/json' }, body: `${head}${items}]}` };
    }
    default:
      throw methodNotAllowed(`${request.method} is not supported on a collection`);
  }
}

async function single(
  options: ApiHandlerOptions,
  kind: Kind,
  target: ApiPath,
  request: IncomingRequest,
  query: URLSearchParams,
): Promise<OutgoingResponse> {
  const { resources } = options;
  const namespace = kind.namespaced ? target.namespace : '';
  const { name } = target;
  const dryRun = query.has('dryRun');
  switch (request.method) {
    case 'GET':
      await waitForVersion(options, readVersionOptions(query, false).atLeast);
      return objectResponse(options, kind, 200, resources.get(kind, namespace, name), request, query);
    case 'PUT': {
      const body = decodeBody(request, options.schema);
      const warnings = checkFields(options, kind, body, query);
      const object = checkBody(kind, namespace, body.object);
      const stored = resources.update(kind, namespace, name, () => object, { dryRun });
      return objectResponse(options, kind, 200, stored, request, query, warnings);
    }
    case 'PATCH': {
      const patched = patch(options, kind, namespace, name, request, query, null);
      return objectResponse(
        options,
        kind,
        patched.created ? 201 : 200,
        patched.stored,
        request,
        query,
        patched.warnings,
      );
    }
    case 'DELETE': {
      const body = decodeBody(request, options.schema, true);
      const { stored, gone } = resources.delete(kind, namespace, name, readDeleteOptions(body.object, query));
      // Upstream answers with the object while it lingers, and for pods always; else with a Status.
      if (!gone || kind.collection === 'pods')
        return objectResponse(options, kind, 200, stored, request, query);
      const { uid = '' } = stored.object.metadata;
      return jsonResponse(200, {
        kind: 'Status',
        apiVersion: 'v1',
        metadata: {},
        status: 'Success',
        details: { name, ...(kind.group ? { group: kind.group } : {}), kind: kind.plural, uid },
      });
    }
    default:
      throw methodNotAllowed(`${request.method} is not supported on ${kind.plural}`);
  }
}

async function subresource(
  options: ApiHandlerOptions,
  kind: Kind,
  target: ApiPath,
  request: IncomingRequest,
  query: URLSearchParams,
): Promise<OutgoingResponse> {
  const { resources } = options;
  const namespace = kind.namespaced ? target.namespace : '';
  const { name } = target;
  const dryRun = query.has('dryRun');
  const missing = () =>
    new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
  const write = request.method === 'PUT' || request.method === 'PATCH';
  const which = target.subresource;
  if (which === 'status' || which === 'finalize') {
    if (which === 'status' ? !kind.status : kind.collection !== 'namespaces') throw missing();
    if (request.method === 'GET')
      return objectResponse(options, kind, 200, resources.get(kind, namespace, name), request, query);
    if (!write) throw methodNotAllowed(`${request.method} is not supported on ${which}`);
    if (request.method === 'PATCH') {
      const patched = patch(options, kind, namespace, name, request, query, 'status');
      return objectResponse(options, kind, 200, patched.stored, request, query, patched.warnings);
    }
    const object = checkBody(kind, namespace, decodeBody(request, options.schema).object);
    const stored = resources.update(kind, namespace, name, () => object, { subresource: which, dryRun });
    return objectResponse(options, kind, 200, stored, request, query);
  }
  if (which === 'scale' && kind.scale) {
    if (request.method === 'GET')
      return jsonResponse(200, scaleOf(resources.get(kind, namespace, name).object));
    if (!write) throw methodNotAllowed(`${request.method} is not supported on scale`);
    const body = decodeBody(request, options.schema);
    const stored = resources.update(
      kind,
      namespace,
      name,
      (current) => {
        const before = scaleOf(current);
        const after =
          request.method === 'PUT' ? body.object : patchedBy(request, before as JsonObject, body.object);
        const scale = { ...(after as ApiObject), metadata: (after as ApiObject).metadata ?? {} };
        return withScale(kind, current, scale);
      },
      { dryRun },
    );
    return jsonResponse(200, scaleOf(stored.object));
  }
  if (kind.collection === 'pods' && which === 'binding' && request.method === 'POST') {
    return bind(options, kind, namespace, name, decodeBody(request, options.schema).object);
  }
  if (kind.collection === 'pods' && which === 'eviction' && request.method === 'POST') {
    const body = decodeBody(request, options.schema).object;
    const deleteOptions = isObject(body) ? body['deleteOptions'] : undefined;
    resources.delete(kind, namespace, name, readDeleteOptions(deleteOptions, query));
    return jsonResponse(201, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
  }
  if (kind.collection === 'pods' && which === 'ephemeralcontainers' && request.method === 'PATCH') {
    const patched = patch(options, kind, namespace, name, request, query, null);
    return objectResponse(options, kind, 200, patched.stored, request, query);
  }
  if (kind.collection === 'serviceaccounts' && which === 'token' && request.method === 'POST') {
    const account = resources.get(kind, namespace, name).object;
    const body = decodeBody(request, options.schema).object;
    return jsonResponse(201, options.tokens.issue(account, isObject(body) ? body : {}));
  }
  const onNode = ['log', 'exec', 'attach', 'portforward'];
  if (
    (kind.collection === 'pods' && onNode.includes(which)) ||
    (kind.collection === 'nodes' && which.startsWith('proxy'))
  ) {
    return options.nodeRequest(target, request);
  }
  throw missing();
}

/** Puts a pod on a node: what a scheduler does. */
function bind(
  options: ApiHandlerOptions,
  kind: Kind,
  namespace: string,
  name: string,
  body: unknown,
): OutgoingResponse {
  const node = textAt(body, 'target', 'name');
  if (node === '') throw badRequest('target.name: the node is missing');
  options.resources.update(kind, namespace, name, (pod) => {
    if (pod.metadata.deletionTimestamp !== undefined) {
      throw new StatusError(
        409,
        'Conflict',
        `pod ${name} is being deleted, cannot be assigned to a host`,
        {},
      );
    }
    const current = textAt(pod, 'spec', 'nodeName');
    if (current !== '')
      throw new StatusError(
        409,
        'Conflict',
        `pod ${name} is already assigned to node ${JSON.stringify(current)}`,
        {},
      );
    pod['spec'] = { ...(pod['spec'] as object), nodeName: node };
    return pod;
  });
  options.resources.update(
    kind,
    namespace,
    name,
    (pod) => {
      const conditions = (at(pod, 'status', 'conditions') as JsonObject[] | undefined) ?? [];
      const scheduled = {
        type: 'PodScheduled',
        status: 'True',
        lastProbeTime: null,
        lastTransitionTime: `${new Date(options.clock.now()).toISOString().slice(0, 19)}Z`,
      };
      const others = conditions.filter((condition) => condition['type'] !== 'PodScheduled');
      pod['status'] = { ...(pod['status'] as object), conditions: [...others, scheduled] };
      return pod;
    },
    { subresource: 'status' },
  );
  return jsonResponse(201, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' });
}

const PATCHES = [
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
  'application/apply-patch+yaml',
];

function patch(
  options: ApiHandlerOptions,
  kind: Kind,
  namespace: string,
  name: string,
  request: IncomingRequest,
  query: URLSearchParams,
  subresource: 'status' | null,
): { stored: StoredObject; warnings: string[]; created: boolean } {
  const body = decodeBody(request, options.schema);
  const type = contentType(request);
  const dryRun = query.has('dryRun');
  const exists = options.store.get(kind.collection, `${namespace}/${name}`) !== undefined;
  let warnings: string[] = [];
  const check = (object: ApiObject): ApiObject => {
    warnings = checkFields(options, kind, { object, json: null }, query);
    return object;
  };
  if (type === 'application/apply-patch+yaml') {
    const manager = query.get('fieldManager');
    if (!manager)
      throw badRequest(
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
      );
    const applied = checkBody(kind, namespace, body.object);
    warnings = checkFields(options, kind, { object: applied, json: body.json }, query);
    const now = new Date(options.clock.now());
    const apply = { manager, force: query.get('force') === 'true', subresource: subresource ?? '', now };
    if (!exists) {
      if (subresource) options.resources.get(kind, namespace, name);
      applied.metadata.name = name;
      const created = applyServerSide(kind, null, applied, apply);
      return { stored: options.resources.create(kind, namespace, created, dryRun), warnings, created: true };
    }
    const stored = options.resources.update(
      kind,
      namespace,
      name,
      (current) => applyServerSide(kind, current, applied, apply),
      {
        dryRun,
        ...(subresource ? { subresource } : {}),
      },
    );
    return { stored, warnings, created: false };
  }
  const stored = options.resources.update(
    kind,
    namespace,
    name,
    (current) => {
      const patched = patchedBy(request, current as JsonObject, body.object);
      // A patch that names no version applies to whatever is there.
      return check(checkBody(kind, namespace, patched));
    },
    { dryRun, ...(subresource ? { subresource } : {}) },
  );
  return { stored, warnings, created: false };
}

function patchedBy(request: IncomingRequest, document: JsonObject, body: unknown): JsonObject {
  switch (contentType(request)) {
    case 'application/json-patch+json':
      return applyJsonPatch(document, body);
    case 'application/merge-patch+json':
      return applyMergePatch(document, body);
    case 'application/strategic-merge-patch+json':
      return applyStrategicPatch(document, body);
    default:
      throw new StatusError(
        415,
        'UnsupportedMediaType',
        `the body of the request was in an unknown format - accepted media types include: ${PATCHES.join(', ')}`,
        {},
      );
  }
}

function contentType(request: IncomingRequest): string {
  return (request.headers['content-type'] ?? '').split(';')[0]?.trim() ?? '';
}

/** Unknown and duplicate fields: refused, warned of or passed over, as `fieldValidation` asks. */
function checkFields(
  options: ApiHandlerOptions,
  kind: Kind,
  body: { readonly object: unknown; readonly json: string | null },
  query: URLSearchParams,
): string[] {
  if (!isObject(body.object)) return [];
  const wrong = options.schema.typeError(apiVersionOf(kind), kind.kind, body.object);
  if (wrong !== null) {
    throw badRequest(
      `${kind.kind} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}: ${wrong}`,
    );
  }
  const problems = options.schema.prune(apiVersionOf(kind), kind.kind, body.object, body.json);
  const mode = query.get('fieldValidation') ?? 'Warn';
  if (problems.length === 0 || mode === 'Ignore') return [];
  if (mode === 'Strict')
    throw badRequest(
      `${kind.kind} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}: strict decoding error: ${problems.join(', ')}`,
    );
  return problems;
}

function objectResponse(
  options: ApiHandlerOptions,
  kind: Kind,
  status: number,
  stored: StoredObject,
  request: IncomingRequest,
  query: URLSearchParams,
  warnings: readonly string[] = [],
): OutgoingResponse {
  const table = tableRequest(request, options.tables, kind, query, new Date(options.clock.now()));
  const body = table
    ? JSON.stringify(table.single(presented(kind, stored.object), true))
    : presentedJson(kind, stored.object, stored.json);
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (warnings.length > 0)
    headers['warning'] = warnings.map((text) => `299 - ${JSON.stringify(text)}`).join(', ');
  return { status, headers, body: `${body}\n` };
}

/** An object under the name by which it was asked for, where two kinds share what is stored. */
function presented(kind: Kind, object: ApiObject): ApiObject {
  const apiVersion = apiVersionOf(kind);
  return object.apiVersion === apiVersion ? object : { ...object, apiVersion, kind: kind.kind };
}

function presentedJson(kind: Kind, object: ApiObject, json: string): string {
  return object.apiVersion === apiVersionOf(kind) ? json : JSON.stringify(presented(kind, object));
}

/** A reader that has seen a later version than ours waits a little for it, then is told to come again. */
async function waitForVersion(options: ApiHandlerOptions, wanted: number): Promise<void> {
  if (wanted <= options.store.version) return;
  await new Promise<void>((resolve) => {
    options.clock.after(3000, resolve);
  });
  if (wanted <= options.store.version) return;
  throw new StatusError(
    504,
    'Timeout',
    `Too large resource version: ${wanted}, current: ${options.store.version}`,
    {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
  );
}

function text<Name extends string>(query: URLSearchParams, name: Name): Partial<Record<Name, string>> {
  const value = query.get(name);
  return (value ? { [name]: value } : {}) as Partial<Record<Name, string>>;
}
