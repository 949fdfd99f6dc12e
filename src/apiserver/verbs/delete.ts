import { mutate, release, validate } from '../admission/run.ts';
import { present, storageKind } from '../conversion.ts';
import { isObject, type JsonObject } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { warn } from '../requests/request-context.ts';
import { respond, success } from '../requests/responses.ts';
import type { ApiServices, ResourceContext, ResourceHandler } from '../services.ts';
import { badRequest } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import type { DeleteRequest } from '../store-requests.ts';
import { readDeleteOptions } from './delete-options.ts';
import { listResponse, selection } from './list.ts';
import { negotiateObject, objectResponse } from './object-response.ts';
import { admissionAttributes } from './write.ts';

/** Deletes one object, or begins its deletion. */
export const deleteObject: ResourceHandler = async (context, services) => {
  const { kind, namespace, name } = context;
  const form = negotiateObject(services, context);
  const options = await deleteOptions(context, services);
  const before = services.resources.get(storageKind(kind), namespace, name);
  const { stored, gone } = await deleteAdmitted(services, context, before, options);
  // Upstream accepts what it does later only for a client that asks so in the deprecated form.
  const status = !gone && options.orphanDependents === false ? 202 : 200;
  // Upstream returns the object while it remains, and for pods always; else a Status.
  if (!gone || kind.answersDeleted) return objectResponse(services, context, form, status, stored);
  const { uid = '' } = stored.object.metadata;
  const group = kind.group === '' ? {} : { group: kind.group };
  return respond(services.schema, form, 200, success({ name, ...group, kind: kind.plural, uid }));
};

async function deleteOptions(context: ResourceContext, services: ApiServices): Promise<DeleteRequest> {
  const { object } = await readBody(context, services.schema, true);
  const wrong = isObject(object) ? services.schema.typeError('v1', 'DeleteOptions', object) : null;
  if (wrong !== null) throw badRequest(wrong);
  const options = readDeleteOptions(object, context.query);
  const { propagationWarning } = context.kind;
  if (propagationWarning && options.propagationPolicy === undefined && options.orphanDependents === undefined)
    warn(context, propagationWarning);
  return options;
}

/** Deletes all objects that the selectors match, and answers with them as they were, as upstream does. */
export const deleteCollection: ResourceHandler = async (context, services) => {
  const { kind } = context;
  const form = negotiateObject(services, context);
  const options = await deleteOptions(context, services);
  const page = await services.resources.list(kind, selection(context));
  const deleted: StoredObject[] = [];
  for (const item of page.items) {
    // Another request may have deleted it concurrently.
    if (services.store.get(item.collection, item.key) === undefined) continue;
    await deleteAdmitted(services, context, item, options);
    deleted.push(item);
  }
  return listResponse(services, context, form, deleted, { resourceVersion: String(services.store.version) });
};

/** Deletes an object after admission. */
async function deleteAdmitted(
  services: ApiServices,
  context: ResourceContext,
  before: StoredObject,
  options: DeleteRequest,
): Promise<{ stored: StoredObject; gone: boolean }> {
  const { kind } = context;
  const { name = '', namespace = '' } = before.object.metadata;
  const attributes = admissionAttributes(context, {
    operation: 'DELETE',
    object: null,
    oldObject: await present(kind, before.object),
    options: deleteOptionsObject(options),
    dryRun: options.dryRun === true,
    name,
  });
  await mutate(services.admission, attributes);
  await validate(services.admission, attributes);
  try {
    const result = services.resources.delete(storageKind(kind), namespace, name, options);
    if (options.dryRun) release(services.admission, attributes);
    return result;
  } catch (error) {
    release(services.admission, attributes);
    throw error;
  }
}

function deleteOptionsObject(options: DeleteRequest): JsonObject {
  const { dryRun, uid, resourceVersion, ...rest } = options;
  const preconditions = {
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
  return {
    kind: 'DeleteOptions',
    apiVersion: 'meta.k8s.io/v1',
    ...rest,
    ...(dryRun ? { dryRun: ['All'] } : {}),
    ...(Object.keys(preconditions).length > 0 ? { preconditions } : {}),
  };
}
