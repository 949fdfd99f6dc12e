import type { IncomingRequest } from './api-request.ts';
import { presented, storageKind, toStorage } from './conversion.ts';
import type { ApiHandlerOptions } from './handler-options.ts';
import { applyJsonPatch, applyMergePatch } from './json-patch.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { decodeBody } from './negotiation.ts';
import type { ApiObject, JsonObject } from './object.ts';
import { checkBody } from './resource-store.ts';
import type { FieldSchema } from './schema/patch-schema.ts';
import { applyServerSide } from './server-side-apply.ts';
import { badRequest, StatusError } from './status-error.ts';
import type { StoredObject } from './store.ts';
import { applyStrategicPatch } from './strategic-patch.ts';
import { checkFields, contentType, fieldManager, writeOptions } from './write-options.ts';

const PATCHES = [
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
  'application/apply-patch+yaml',
];

export function patch(
  options: ApiHandlerOptions,
  kind: Kind,
  namespace: string,
  name: string,
  request: IncomingRequest,
  query: URLSearchParams,
  subresource: 'status' | 'finalize' | null,
): { stored: StoredObject; warnings: string[]; created: boolean } {
  const body = decodeBody(request, options.schema);
  const type = contentType(request);
  const dryRun = query.has('dryRun');
  const exists = options.store.get(kind.collection, `${namespace}/${name}`) !== undefined;
  const schema = options.schema.patchSchema(apiVersionOf(kind), kind.kind);
  let warnings: string[] = [];
  const check = (object: ApiObject): ApiObject => {
    warnings = checkFields(options, kind, { object, json: null }, query);
    return object;
  };
  if (type === 'application/apply-patch+yaml') {
    if (!query.get('fieldManager'))
      throw badRequest(
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
      );
    const applied = checkBody(kind, namespace, body.object);
    warnings = checkFields(options, kind, { object: applied, json: body.json }, query);
    const apply = {
      manager: fieldManager(options, kind, request, query, subresource ?? ''),
      force: query.get('force') === 'true',
      hasStatus: kind.status,
    };
    if (!exists) {
      if (subresource) options.resources.get(kind, namespace, name);
      applied.metadata.name = name;
      const created = applyServerSide(null, applied, schema, apply);
      const stored = options.resources.create(kind, namespace, created, { dryRun });
      return { stored, warnings, created: true };
    }
    const stored = options.resources.update(
      kind,
      namespace,
      name,
      (current) => applyServerSide(current, applied, schema, apply),
      {
        dryRun,
        ...(subresource ? { subresource } : {}),
      },
    );
    return { stored, warnings, created: false };
  }
  const stored = options.resources.update(
    storageKind(kind),
    namespace,
    name,
    (current) => {
      const patched = patchedBy(request, presented(kind, current) as JsonObject, body.object, schema);
      // A patch that names no version applies to whatever is there.
      return toStorage(kind, check(checkBody(kind, namespace, patched)));
    },
    writeOptions(options, kind, request, query, subresource),
  );
  return { stored, warnings, created: false };
}

export function patchedBy(
  request: IncomingRequest,
  document: JsonObject,
  body: unknown,
  schema: FieldSchema | null,
): JsonObject {
  switch (contentType(request)) {
    case 'application/json-patch+json':
      return applyJsonPatch(document, body);
    case 'application/merge-patch+json':
      return applyMergePatch(document, body);
    case 'application/strategic-merge-patch+json':
      return applyStrategicPatch(document, body, schema);
    default:
      throw new StatusError(
        415,
        'UnsupportedMediaType',
        `the body of the request was in an unknown format - accepted media types include: ${PATCHES.join(', ')}`,
        {},
      );
  }
}
