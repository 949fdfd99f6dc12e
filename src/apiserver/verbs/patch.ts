import { storageKind } from '../conversion.ts';
import { applyJsonPatch, applyMergePatch } from '../json-patch.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import { type ApiObject, isObject, type JsonObject, jsonType } from '../object.ts';
import { contentType, readBody } from '../requests/body.ts';
import type { FieldSchema } from '../schema/patch-schema.ts';
import { applyServerSide } from '../server-side-apply.ts';
import type { ApiServices, ResourceContext, ResourceHandler } from '../services.ts';
import { invalid, invalidObject, notFound, StatusError } from '../status-error.ts';
import type { Part } from '../store-requests.ts';
import { applyStrategicPatch } from '../strategic-patch.ts';
import { checkBody, checkName, headProblem } from '../write-rules.ts';
import { negotiateObject, objectResponse } from './object-response.ts';
import { createObject, updateObject } from './write.ts';
import {
  checkAppliedFields,
  checkFields,
  fieldManager,
  readRequestOptions,
  storeOptions,
} from './write-options.ts';

const APPLY = 'application/apply-patch+yaml';
const STRATEGIC = 'application/strategic-merge-patch+json';
const PATCHES = ['application/json-patch+json', 'application/merge-patch+json', STRATEGIC, APPLY];

/** Patches an object, or the part of it that a subresource may change. */
export function patchPart(part: Part): ResourceHandler {
  return async (context, services) => {
    const type = contentType(context);
    if (!patchTypes(context).includes(type)) throw unknownPatch(type, patchTypes(context));
    return type === APPLY ? apply(services, context, part) : patch(services, context, part);
  };
}

async function apply(services: ApiServices, context: ResourceContext, part: Part) {
  const { kind, namespace, name } = context;
  const form = negotiateObject(services, context);
  const options = readRequestOptions(context.query, 'PatchOptions', true);
  const body = await readBody(context, services.schema);
  const exists = services.store.get(storageKind(kind).collection, `${namespace}/${name}`) !== undefined;
  if (!exists && part !== 'main') throw notFound(kind, name);
  checkAppliedFields(services, kind, body, context, options.fieldValidation);
  const applied = checkBody(kind, namespace, body.object);
  const schema = services.schema.patchSchema(apiVersionOf(kind), kind.kind);
  const settings = {
    manager: fieldManager(services, kind, context, options),
    force: options.force,
    hasStatus: kind.status,
    isCustom: kind.isCustom === true,
    empty: services.schema.empty(apiVersionOf(kind), kind.kind),
    normalise: (object: ApiObject) =>
      void services.schema.prune(apiVersionOf(kind), kind.kind, object, null, true),
  };
  if (!exists) {
    checkName(applied, name);
    const object = applyServerSide(null, applied, schema, settings);
    const created = await createObject(services, context, object, options, { dryRun: options.dryRun });
    return objectResponse(services, context, form, 201, created);
  }
  const stored = await updateObject(
    services,
    context,
    (current) => applyServerSide(current, structuredClone(applied), schema, settings),
    options,
    { dryRun: options.dryRun, part },
  );
  return objectResponse(services, context, form, 200, stored);
}

async function patch(services: ApiServices, context: ResourceContext, part: Part) {
  const { kind, namespace } = context;
  const form = negotiateObject(services, context);
  const options = readRequestOptions(context.query, 'PatchOptions');
  const body = await readBody(context, services.schema);
  const schema = services.schema.patchSchema(apiVersionOf(kind), kind.kind);
  const change = (current: ApiObject) => {
    const patched = patchedBy(context, current as JsonObject, body.object, schema);
    checkHead(kind, patched);
    const object = checkBody(kind, namespace, patched);
    const { uid } = object.metadata;
    // For other updates, a UID is a precondition.
    if (uid && uid !== current.metadata.uid)
      throw invalidObject(kind, context.name, [invalid('metadata.uid', uid, 'field is immutable')]);
    try {
      checkFields(services, kind, { object, json: null }, context, options.fieldValidation);
    } catch (error) {
      throw error instanceof StatusError && error.code === 400 ? undecodable(patched, error.message) : error;
    }
    return object;
  };
  const store = storeOptions(services, kind, context, options, part);
  const stored = await updateObject(services, context, change, options, store);
  return objectResponse(services, context, form, 200, stored);
}

/** Throws StatusError 422 if the head of what a patch gives is not of the kind. */
function checkHead(kind: Kind, patched: JsonObject): void {
  const problem = headProblem(kind, patched);
  if (problem !== null) throw undecodable(patched, problem);
  const { metadata } = patched;
  if (metadata !== undefined && !isObject(metadata)) {
    const field = `${kind.kind}.metadata of type v1.ObjectMeta`;
    throw undecodable(patched, `json: cannot unmarshal ${jsonType(metadata)} into Go struct field ${field}`);
  }
}

/** Returns the refusal of what a patch gives: it cannot be decoded. Upstream names neither the kind nor the object. */
function undecodable(patched: JsonObject, detail: string): StatusError {
  const error = invalid('patch', JSON.stringify(patched), detail);
  return invalidObject({ group: '', kind: '', plural: '' }, '', [error]);
}

/** Applies a patch of the request's content type to the document. Throws StatusError 400, 415 or 422. */
export function patchedBy(
  context: ResourceContext,
  document: JsonObject,
  body: unknown,
  schema: FieldSchema | null,
): JsonObject {
  const type = contentType(context);
  switch (type) {
    case 'application/json-patch+json':
      return applyJsonPatch(document, body);
    case 'application/merge-patch+json':
      return applyMergePatch(document, body);
    case STRATEGIC:
      return applyStrategicPatch(document, body, schema);
    default:
      throw unknownPatch(type, patchTypes(context));
  }
}

/**
 * Returns the supported patch types: custom kinds have no strategic merge patches, whose merge keys belong to Go types.
 */
function patchTypes({ kind }: ResourceContext): readonly string[] {
  return kind.isCustom ? PATCHES.filter((type) => type !== STRATEGIC) : PATCHES;
}

function unknownPatch(type: string, accepted: readonly string[]): StatusError {
  return new StatusError(
    415,
    'UnsupportedMediaType',
    `the body of the request was in an unknown format (${type}) - accepted media types include: ${accepted.join(', ')}`,
    {},
  );
}
