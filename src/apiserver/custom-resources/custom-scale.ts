import { ownMember, setOwnMember } from '../../lib/own-member.ts';
import { present, storageKind } from '../conversion.ts';
import { type ApiObject, at, isObject, type JsonObject } from '../object.ts';
import { contentType, readBody } from '../requests/body.ts';
import { respondNegotiated } from '../requests/responses.ts';
import type { ApiServices, ResourceContext, Subresource } from '../services.ts';
import { invalid, invalidObject, StatusError } from '../status-error.ts';
import { patchedBy } from '../verbs/patch.ts';
import { updateObject } from '../verbs/write.ts';
import { type RequestOptions, readRequestOptions, storeOptions } from '../verbs/write-options.ts';

const SCALE = { group: 'autoscaling', version: 'v1', kind: 'Scale' } as const;

/** Paths of the replica count in a custom object (CustomResourceSubresourceScale). */
export interface ScalePaths {
  readonly specReplicasPath: string;
  readonly statusReplicasPath: string;
  readonly labelSelectorPath?: string;
}

/** Splits a path such as ".spec.replicas" into its members. */
const members = (path: string): string[] => path.split('.').slice(1);

/** Returns the value at a path of the definition; undefined if a member is absent. */
const valueAt = (object: ApiObject, path: string): unknown =>
  members(path).reduce<unknown>(
    (value, field) => (isObject(value) ? ownMember(value, field) : undefined),
    object,
  );

/** Builds the scale subresource of a custom resource. */
export function customScale(paths: ScalePaths): Subresource {
  const scaleOf = (object: ApiObject): JsonObject => {
    const { name = '', namespace, uid = '', resourceVersion = '', creationTimestamp = '' } = object.metadata;
    const selector = paths.labelSelectorPath ? valueAt(object, paths.labelSelectorPath) : undefined;
    const replicas = valueAt(object, paths.specReplicasPath);
    if (replicas === undefined) {
      throw new StatusError(
        500,
        'InternalError',
        `the spec replicas field ${JSON.stringify(paths.specReplicasPath)} does not exist`,
        {},
      );
    }
    return {
      kind: 'Scale',
      apiVersion: 'autoscaling/v1',
      metadata: { name, ...(namespace ? { namespace } : {}), uid, resourceVersion, creationTimestamp },
      spec: { replicas: replicas as number },
      status: {
        replicas: Number(valueAt(object, paths.statusReplicasPath) ?? 0),
        ...(typeof selector === 'string' ? { selector } : {}),
      },
    };
  };

  const withReplicas = (object: ApiObject, scale: JsonObject): ApiObject => {
    const replicas = at(scale, 'spec', 'replicas') ?? 0;
    if (typeof replicas !== 'number' || !Number.isInteger(replicas) || replicas < 0) {
      throw invalidObject({ ...SCALE, plural: 'scales' }, object.metadata.name ?? '', [
        invalid('spec.replicas', replicas, 'must be greater than or equal to 0'),
      ]);
    }
    const changed = structuredClone(object);
    const path = members(paths.specReplicasPath);
    const last = path.pop() ?? '';
    let place: JsonObject = changed as unknown as JsonObject;
    for (const field of path) {
      const present = ownMember(place, field);
      const next = isObject(present) ? present : {};
      setOwnMember(place, field, next);
      place = next;
    }
    setOwnMember(place, last, replicas);
    const version = at(scale, 'metadata', 'resourceVersion');
    if (typeof version === 'string' && version !== '') changed.metadata.resourceVersion = version;
    return changed;
  };

  async function store(
    services: ApiServices,
    context: ResourceContext,
    options: RequestOptions,
    change: (scale: JsonObject) => JsonObject,
  ) {
    const stored = await updateObject(
      services,
      context,
      (current) => withReplicas(current, change(scaleOf(current))),
      options,
      storeOptions(services, context.kind, context, options),
    );
    const object = await present(context.kind, stored.object);
    return respondNegotiated(services.schema, context, 200, scaleOf(object));
  }

  return {
    name: 'scale',
    kind: SCALE,
    handlers: {
      async get(context, services) {
        const { object } = services.resources.get(storageKind(context.kind), context.namespace, context.name);
        const shown = await present(context.kind, object);
        return respondNegotiated(services.schema, context, 200, scaleOf(shown));
      },
      async update(context, services) {
        const options = readRequestOptions(context.query, 'UpdateOptions');
        const body = await readBody(context, services.schema);
        return store(services, context, options, () => body.object as JsonObject);
      },
      async patch(context, services) {
        if (contentType(context) === 'application/apply-patch+yaml') {
          throw new StatusError(
            415,
            'UnsupportedMediaType',
            'server-side apply of the scale subresource is not supported: use a merge patch',
            {},
          );
        }
        const options = readRequestOptions(context.query, 'PatchOptions');
        const body = await readBody(context, services.schema);
        const schema = services.schema.patchSchema('autoscaling/v1', 'Scale');
        return store(services, context, options, (before) => patchedBy(context, before, body.object, schema));
      },
    },
  };
}
