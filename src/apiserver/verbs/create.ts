import { readBody } from '../requests/body.ts';
import { warn } from '../requests/request-context.ts';
import type { ResourceHandler } from '../services.ts';
import { badRequest } from '../status-error.ts';
import { checkBody, removeRepeatedOwners } from '../write-rules.ts';
import { negotiateObject, objectResponse } from './object-response.ts';
import { createObject } from './write.ts';
import { checkFields, readRequestOptions, storeOptions } from './write-options.ts';

/** Creates an object from the body. */
export const create: ResourceHandler = async (context, services) => {
  const { kind, namespace } = context;
  const form = negotiateObject(services, context);
  if (kind.namespaced && namespace === '') {
    throw badRequest('an empty namespace may not be set during creation');
  }
  const options = readRequestOptions(context.query, 'CreateOptions');
  const body = await readBody(context, services.schema);
  checkFields(services, kind, body, context, options.fieldValidation);
  const object = checkBody(kind, namespace, body.object);
  const repeated = removeRepeatedOwners(object);
  if (repeated !== null) warn(context, repeated);
  const store = storeOptions(services, kind, context, options);
  const stored = await createObject(services, context, object, options, store);
  const notice = typeof kind.notice === 'function' ? kind.notice(stored.object) : kind.notice;
  if (notice) warn(context, notice);
  return objectResponse(services, context, form, 201, stored);
};
