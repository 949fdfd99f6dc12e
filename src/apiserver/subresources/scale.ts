import type { ApiObject, JsonObject } from '../object.ts';
import { contentType, readBody } from '../requests/body.ts';
import { respondNegotiated } from '../requests/responses.ts';
import type { ApiServices, ResourceContext, ResourceHandler, Subresource } from '../services.ts';
import { badRequest } from '../status-error.ts';
import { patchedBy } from '../verbs/patch.ts';
import { updateObject } from '../verbs/write.ts';
import {
  checkFields,
  type RequestOptions,
  readRequestOptions,
  storeOptions,
} from '../verbs/write-options.ts';
import { scaleOf, withScale } from './scale-object.ts';

const SCALE = { group: 'autoscaling', version: 'v1', kind: 'Scale' } as const;

const getScale: ResourceHandler = (context, services) => {
  const { object } = services.resources.get(context.kind, context.namespace, context.name);
  return respondNegotiated(services.schema, context, 200, scaleOf(object));
};

const updateScale: ResourceHandler = async (context, services) => {
  const options = readRequestOptions(context.query, 'UpdateOptions');
  const body = await readBody(context, services.schema);
  checkFields(services, SCALE, body, context, options.fieldValidation);
  return store(services, context, options, () => body.object as JsonObject);
};

const patchScale: ResourceHandler = async (context, services) => {
  const isApply = contentType(context) === 'application/apply-patch+yaml';
  if (isApply)
    throw badRequest('server-side apply of the scale subresource is not supported: use a merge patch');
  const options = readRequestOptions(context.query, 'PatchOptions');
  const body = await readBody(context, services.schema);
  const schema = services.schema.patchSchema('autoscaling/v1', 'Scale');
  return store(services, context, options, (before) => {
    const after = patchedBy(context, before, body.object, schema);
    checkFields(services, SCALE, { object: after, json: null }, context, options.fieldValidation);
    return after;
  });
};

/** Stores the replica count of a changed Scale. */
async function store(
  services: ApiServices,
  context: ResourceContext,
  options: RequestOptions,
  change: (before: JsonObject) => JsonObject,
) {
  const stored = await updateObject(
    services,
    context,
    (current) => {
      const after = change(scaleOf(current) as JsonObject) as unknown as ApiObject;
      return withScale(context.kind, current, { ...after, metadata: after.metadata ?? {} });
    },
    options,
    storeOptions(services, context.kind, context, options),
  );
  return respondNegotiated(services.schema, context, 200, scaleOf(stored.object));
}

/** The replica count of a workload, as autoscaling/v1 Scale. */
export const SCALE_SUBRESOURCE: Subresource = {
  name: 'scale',
  kind: SCALE,
  handlers: { get: getScale, patch: patchScale, update: updateScale },
};
