import { storageKind } from '../conversion.ts';
import { readBody } from '../requests/body.ts';
import { warn } from '../requests/request-context.ts';
import type { ResourceHandler } from '../services.ts';
import type { Part } from '../store-requests.ts';
import { checkBody, checkName, removeRepeatedOwners } from '../write-rules.ts';
import { negotiateObject, objectResponse } from './object-response.ts';
import { createObject, updateObject } from './write.ts';
import { checkFields, readRequestOptions, storeOptions } from './write-options.ts';

/** Replaces an object, or the part of it that a subresource may change. */
export function updatePart(part: Part): ResourceHandler {
  return async (context, services) => {
    const { kind, namespace, name } = context;
    const form = negotiateObject(services, context);
    const options = readRequestOptions(context.query, 'UpdateOptions');
    const body = await readBody(context, services.schema);
    checkFields(services, kind, body, context, options.fieldValidation);
    const object = checkBody(kind, namespace, body.object);
    const store = storeOptions(services, kind, context, options, part);
    const { uid } = object.metadata;
    checkName(object, name);
    const repeated = removeRepeatedOwners(object);
    if (repeated !== null) warn(context, repeated);
    const exists = services.store.get(storageKind(kind).collection, `${namespace}/${name}`) !== undefined;
    if (!exists && part === 'main' && kind.createOnUpdate && !uid) {
      object.metadata.name = name;
      const created = await createObject(services, context, object, options, store);
      return objectResponse(services, context, form, 201, created);
    }
    const stored = await updateObject(services, context, () => structuredClone(object), options, store);
    return objectResponse(services, context, form, 200, stored);
  };
}
