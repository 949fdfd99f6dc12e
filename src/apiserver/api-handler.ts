import { messageOf } from '../lib/errors.ts';
import { type ApiPath, type IncomingRequest, type OutgoingResponse, parseApiPath } from './api-request.ts';
import { bind } from './bind-pod.ts';
import { presented, presentedJson, storageKind, toStorage } from './conversion.ts';
import { readDeleteOptions } from './delete-options.ts';
import { REVIEWS } from './discovery.ts';
import type { ApiHandlerOptions } from './handler-options.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { readVersionOptions } from './list-options.ts';
import { decodeBody, jsonResponse } from './negotiation.ts';
import { nonResource } from './non-resource.ts';
import { type ApiObject, isObject, type JsonObject } from './object.ts';
import { patch, patchedBy } from './patch-object.ts';
import { checkEviction } from './pod-eviction.ts';
import { checkBody } from './resource-store.ts';
import { review } from './reviews.ts';
import { scaleOf, withScale } from './scale.ts';
import { methodNotAllowed, StatusError } from './status-error.ts';
import type { StoredObject } from './store.ts';
import { tableRequest } from './table.ts';
import { watch } from './watch.ts';
import { checkFields, writeOptions } from './write-options.ts';

/** Answers every request that is no upgrade. Never throws: refusals become Status objects. */
export function createApiHandler(
  options: ApiHandlerOptions,
): (request: IncomingRequest) => Promise<OutgoingResponse> {
  return async (request) => {
    const seen: Seen = { verb: request.method, resource: '' };
    const response = await route(options, request, seen).catch((error: unknown) => {
      if (error instanceof StatusError) return statusResponse(error);
      options.logger.error({ method: request.method, url: request.url, err: error }, 'request failed');
      return statusResponse(
        new StatusError(500, 'InternalError', `Internal error occurred: ${messageOf(error)}`),
      );
    });
    options.metrics.count(seen.verb, seen.resource, response.status);
    return response;
  };
}

/** What a request turns out to be, for the metrics. */
interface Seen {
  verb: string;
  resource: string;
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

async function route(
  options: ApiHandlerOptions,
  request: IncomingRequest,
  seen: Seen,
): Promise<OutgoingResponse> {
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
  seen.resource = kind.plural;
  if (request.method === 'GET' && target.name === '') {
    seen.verb = url.searchParams.get('watch') ? 'WATCH' : 'LIST';
  }
  if (target.subresource !== '') return subresource(options, kind, target, request, url.searchParams);
  return target.name === ''
    ? collection(options, kind, target, request, url.searchParams)
    : single(options, kind, target, request, url.searchParams);
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
            : kind.view
              ? (object) => JSON.stringify(presented(kind, object))
              : null,
          signal: AbortSignal.any([request.signal, options.closing]),
        });
        body.on('close', options.metrics.watching(kind.plural));
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
      const items = page.items.map((item) => presentedJson(kind, item)).join(',');
      const head = `{"kind":"${kind.kind}List","apiVersion":"${apiVersionOf(kind)}","metadata":${JSON.stringify(metadata)},"items":[`;
      return { status: 200, headers: { 'content-type': 'application/json' }, body: `${head}${items}]}\n` };
    }
    case 'POST': {
      const body = decodeBody(request, options.schema);
      const namespace = kind.namespaced ? target.namespace || 'default' : '';
      const warnings = checkFields(options, kind, body, query);
      const object = toStorage(kind, checkBody(kind, namespace, body.object));
      const stored = resources.create(
        storageKind(kind),
        namespace,
        object,
        writeOptions(options, kind, request, query),
      );
      if (kind.notice) warnings.push(kind.notice);
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
  switch (request.method) {
    case 'GET':
      await waitForVersion(options, readVersionOptions(query, false).atLeast);
      return objectResponse(options, kind, 200, resources.get(kind, namespace, name), request, query);
    case 'PUT': {
      const body = decodeBody(request, options.schema);
      const warnings = checkFields(options, kind, body, query);
      const object = toStorage(kind, checkBody(kind, namespace, body.object));
      const write = writeOptions(options, kind, request, query);
      const storage = storageKind(kind);
      const { uid, resourceVersion } = object.metadata;
      const exists = options.store.get(kind.collection, `${namespace}/${name}`) !== undefined;
      if (!exists && kind.createOnUpdate && !uid && !resourceVersion) {
        object.metadata.name = name;
        const created = resources.create(storage, namespace, object, write);
        return objectResponse(options, kind, 201, created, request, query, warnings);
      }
      const stored = resources.update(storage, namespace, name, () => object, write);
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
      const patched = patch(options, kind, namespace, name, request, query, which);
      return objectResponse(options, kind, 200, patched.stored, request, query, patched.warnings);
    }
    const object = checkBody(kind, namespace, decodeBody(request, options.schema).object);
    const stored = resources.update(
      kind,
      namespace,
      name,
      () => object,
      writeOptions(options, kind, request, query, which),
    );
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
          request.method === 'PUT'
            ? body.object
            : patchedBy(request, before as JsonObject, body.object, null);
        const scale = { ...(after as ApiObject), metadata: (after as ApiObject).metadata ?? {} };
        return withScale(kind, current, scale);
      },
      writeOptions(options, kind, request, query),
    );
    return jsonResponse(200, scaleOf(stored.object));
  }
  if (kind.collection === 'pods' && which === 'binding' && request.method === 'POST') {
    return bind(options, kind, namespace, name, decodeBody(request, options.schema).object);
  }
  if (kind.collection === 'pods' && which === 'eviction' && request.method === 'POST') {
    const body = decodeBody(request, options.schema).object;
    const deleteOptions = isObject(body) ? body['deleteOptions'] : undefined;
    checkEviction(resources.get(kind, namespace, name).object, (collection, where) =>
      options.store.list(collection, where).map(({ object }) => object),
    );
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
    : presentedJson(kind, stored);
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (warnings.length > 0) headers['warning'] = warnings.map(warning).join(', ');
  return { status, headers, body: `${body}\n` };
}

/** One value of a Warning header (RFC 9111, section 5.5): headers hold nothing but printable ASCII. */
function warning(text: string): string {
  const ascii = text.replace(
    /[^\x20-\x7e]/g,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
  return `299 - ${JSON.stringify(ascii)}`;
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
