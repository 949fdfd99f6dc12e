import { storageKind } from '../conversion.ts';
import type { ResourceHandler } from '../services.ts';
import { readVersionOptions } from './list-options.ts';
import { negotiateObject, objectResponse } from './object-response.ts';
import { waitForVersion } from './wait-for-version.ts';

/** Returns one object. */
export const getObject: ResourceHandler = async (context, services) => {
  const form = negotiateObject(services, context);
  await waitForVersion(services, readVersionOptions(context.query, false).atLeast);
  const stored = services.resources.get(storageKind(context.kind), context.namespace, context.name);
  return objectResponse(services, context, form, 200, stored);
};
