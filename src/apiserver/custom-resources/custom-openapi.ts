import type { CustomKind } from './custom-kind.ts';

type Schema = Record<string, unknown>;

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1';
const ref = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` });

const OBJECT_META: Schema = {
  description: 'ObjectMeta is metadata that all persisted resources must have.',
  type: 'object',
  properties: {
    annotations: { type: 'object', additionalProperties: { type: 'string' } },
    creationTimestamp: { type: 'string', format: 'date-time' },
    deletionGracePeriodSeconds: { type: 'integer', format: 'int64' },
    deletionTimestamp: { type: 'string', format: 'date-time' },
    finalizers: { type: 'array', items: { type: 'string' }, 'x-kubernetes-list-type': 'set' },
    generateName: { type: 'string' },
    generation: { type: 'integer', format: 'int64' },
    labels: { type: 'object', additionalProperties: { type: 'string' } },
    managedFields: { type: 'array', items: { type: 'object' }, 'x-kubernetes-list-type': 'atomic' },
    name: { type: 'string' },
    namespace: { type: 'string' },
    ownerReferences: {
      type: 'array',
      items: { type: 'object' },
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['uid'],
    },
    resourceVersion: { type: 'string' },
    selfLink: { type: 'string' },
    uid: { type: 'string' },
  },
};

const LIST_META: Schema = {
  type: 'object',
  properties: {
    continue: { type: 'string' },
    remainingItemCount: { type: 'integer', format: 'int64' },
    resourceVersion: { type: 'string' },
  },
};

/** The name of a custom kind's schema: its group reversed, its version and kind (com.example.v1.Widget). */
export function customOpenapiName({ kind }: CustomKind): string {
  return [...kind.group.split('.').reverse(), kind.version, kind.kind].join('.');
}

/** The schema of a custom kind as it is published: with the type and metadata that every object has. */
export function customOpenapiSchema(custom: CustomKind, metadata: Schema): Schema {
  const { kind, schema } = custom;
  const { properties = {}, ...rest } = schema as Schema & { properties?: Schema };
  return {
    ...rest,
    type: 'object',
    properties: {
      ...properties,
      apiVersion: { type: 'string', description: 'APIVersion defines the versioned schema of this object.' },
      kind: { type: 'string', description: 'Kind is the REST resource that this object represents.' },
      metadata,
    },
    'x-kubernetes-group-version-kind': [{ group: kind.group, version: kind.version, kind: kind.kind }],
  };
}

/** The OpenAPI v3 document of a group-version of custom kinds. */
export function customOpenapi(kinds: readonly CustomKind[], apiVersion: string): Schema {
  const schemas: Schema = { [`${META}.ObjectMeta`]: OBJECT_META, [`${META}.ListMeta`]: LIST_META };
  const paths: Schema = {};
  for (const custom of kinds) {
    const { kind } = custom;
    const name = customOpenapiName(custom);
    const gvk = { group: kind.group, version: kind.version, kind: kind.kind };
    schemas[name] = customOpenapiSchema(custom, { allOf: [ref(`${META}.ObjectMeta`)] });
    schemas[`${name}List`] = {
      type: 'object',
      required: ['items'],
      properties: {
        apiVersion: { type: 'string' },
        items: { type: 'array', items: ref(name) },
        kind: { type: 'string' },
        metadata: ref(`${META}.ListMeta`),
      },
      'x-kubernetes-group-version-kind': [{ ...gvk, kind: kind.listKind ?? `${kind.kind}List` }],
    };
    const prefix = `/apis/${apiVersion}${kind.namespaced ? '/namespaces/{namespace}' : ''}/${kind.plural}`;
    const body = { content: { 'application/json': { schema: ref(name) } } };
    const operation = (action: string, withBody = false) => ({
      ...(withBody
        ? {
            requestBody: body,
            parameters: ['dryRun', 'fieldManager', 'fieldValidation'].map((parameter) => ({
              name: parameter,
              in: 'query',
              schema: { type: 'string', uniqueItems: true },
            })),
          }
        : {}),
      responses: { '200': { description: 'OK', ...body } },
      'x-kubernetes-action': action,
      'x-kubernetes-group-version-kind': gvk,
    });
    paths[prefix] = {
      get: operation('list'),
      post: operation('post', true),
      delete: operation('deletecollection'),
    };
    const item = {
      get: operation('get'),
      put: operation('put', true),
      patch: operation('patch', true),
    };
    paths[`${prefix}/{name}`] = { ...item, delete: operation('delete') };
    if (kind.status) paths[`${prefix}/{name}/status`] = item;
  }
  return {
    openapi: '3.0.0',
    info: { title: 'Kubernetes CRD', version: apiVersion },
    paths,
    components: { schemas },
  };
}
