import type { CustomKind } from './custom-kind.ts';

type Schema = Record<string, unknown>;

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1';
const ref = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` });

const METADATA =
  "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/** Extracts the schemas that every document of custom kinds refers to from one of the server's own documents. */
export function metadataSchemas(document: unknown): Schema {
  const { components } = document as { components: { schemas: Schema } };
  const taken: Schema = {};
  const take = (name: string): void => {
    if (taken[name] !== undefined || components.schemas[name] === undefined) return;
    taken[name] = components.schemas[name];
    const text = JSON.stringify(components.schemas[name]);
    for (const [, other = ''] of text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)) take(other);
  };
  take(`${META}.ObjectMeta`);
  take(`${META}.ListMeta`);
  return taken;
}

/** Returns the name of a custom kind's schema: its group reversed, its version and kind (com.example.v1.Widget). */
function customOpenapiName({ kind }: CustomKind): string {
  return [...kind.group.split('.').reverse(), kind.version, kind.kind].join('.');
}

/** Builds the published schema of a custom kind: with the type and metadata that every object has. */
function customOpenapiSchema(custom: CustomKind, metadata: Schema): Schema {
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

/** Builds the OpenAPI v3 document of a group-version of custom kinds; `metadata`: see metadataSchemas. */
export function customOpenapi(kinds: readonly CustomKind[], apiVersion: string, metadata: Schema): Schema {
  const schemas: Schema = { ...metadata };
  const paths: Schema = {};
  for (const custom of kinds) {
    const { kind } = custom;
    const name = customOpenapiName(custom);
    const gvk = { group: kind.group, version: kind.version, kind: kind.kind };
    schemas[name] = customOpenapiSchema(custom, {
      description: METADATA,
      default: {},
      allOf: [ref(`${META}.ObjectMeta`)],
    });
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
