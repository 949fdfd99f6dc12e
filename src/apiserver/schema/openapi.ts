import { PACKAGES } from './generated/index.ts';
import { type Descriptions, loadDescriptions } from './packages.ts';
import type { Field, FieldType, ObjectType, Scalar, TypeRegistry } from './type-schema.ts';

/** The OpenAPI information of a served kind. */
export interface ServedKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  readonly status: boolean;
  readonly scale: boolean;
}

type Schema = Record<string, unknown>;

const SPECIAL: Readonly<Partial<Record<Scalar, { readonly name: string; readonly schema: Schema }>>> = {
  '@Quantity': {
    name: 'io.k8s.apimachinery.pkg.api.resource.Quantity',
    schema: {
      description:
        'Quantity is a fixed-point representation of a number: a decimal with a suffix such as m, k, M, G or Ki, Mi, Gi, or an exponent.',
      oneOf: [{ type: 'string' }, { type: 'number' }],
    },
  },
  '@IntOrString': {
    name: 'io.k8s.apimachinery.pkg.util.intstr.IntOrString',
    schema: {
      description: 'IntOrString is a type that can hold an int32 or a string.',
      format: 'int-or-string',
      oneOf: [{ type: 'integer' }, { type: 'string' }],
    },
  },
  '@Time': {
    name: 'io.k8s.apimachinery.pkg.apis.meta.v1.Time',
    schema: {
      description: 'Time is a date and time in the form of RFC 3339, to the second.',
      type: 'string',
      format: 'date-time',
    },
  },
  '@MicroTime': {
    name: 'io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime',
    schema: {
      description: 'MicroTime is a date and time in the form of RFC 3339, to the microsecond.',
      type: 'string',
      format: 'date-time',
    },
  },
  '@Duration': {
    name: 'io.k8s.apimachinery.pkg.apis.meta.v1.Duration',
    schema: { description: 'Duration is a length of time such as "1h30m".', type: 'string' },
  },
  '@FieldsV1': {
    name: 'io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1',
    schema: {
      description: 'FieldsV1 stores a set of fields in a data structure like a Trie.',
      type: 'object',
    },
  },
  '@RawExtension': {
    name: 'io.k8s.apimachinery.pkg.runtime.RawExtension',
    schema: { description: 'RawExtension is an object of any kind.', type: 'object' },
  },
};

const PLAIN: Readonly<Partial<Record<Scalar, Schema>>> = {
  string: { type: 'string' },
  bool: { type: 'boolean' },
  int32: { type: 'integer', format: 'int32' },
  int64: { type: 'integer', format: 'int64' },
  float64: { type: 'number', format: 'double' },
  bytes: { type: 'string', format: 'byte' },
  '@ExtraValue': { type: 'array', items: { type: 'string' } },
};

const PATCH_TYPES = [
  'application/apply-patch+yaml',
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
];

const BODY_TYPES = ['application/json', 'application/yaml', 'application/vnd.kubernetes.protobuf'];

/** Builds the OpenAPI v3 document of one group-version: paths, schemas, and the extensions that clients read. */
export async function openapiDocument(
  types: TypeRegistry,
  kinds: readonly ServedKind[],
  group: string,
  version: string,
): Promise<Schema> {
  const components = new Map<string, Schema>();
  const descriptions = new Map<string, Descriptions>();
  const apiVersion = group === '' ? version : `${group}/${version}`;
  const own = kinds.filter((kind) => kind.group === group && kind.version === version);
  const pending: ObjectType[] = [];
  const paths: Record<string, unknown> = {};

  /** Returns a reference to an object's schema, and adds that schema. */
  function reference(type: ObjectType): Schema {
    const name = openapiName(type);
    if (!components.has(name)) {
      components.set(name, {});
      pending.push(type);
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  function valueSchema(type: FieldType): Schema {
    switch (type.kind) {
      case 'object':
        return reference(types.type(type.name));
      case 'list':
        return { type: 'array', items: valueSchema(type.items) };
      case 'map':
        return { type: 'object', additionalProperties: valueSchema(type.values) };
      case 'scalar': {
        const special = SPECIAL[type.scalar];
        if (!special) return { ...PLAIN[type.scalar] };
        components.set(special.name, special.schema);
        return { $ref: `#/components/schemas/${special.name}` };
      }
    }
  }

  for (const kind of own) {
    const type = types.kind(apiVersion, kind.kind);
    if (!type) continue;
    const list = types.kind(apiVersion, `${kind.kind}List`);
    const scale = types.kind('autoscaling/v1', 'Scale');
    const prefix = `/${group === '' ? 'api' : `apis/${group}`}/${version}`;
    const collection = kind.namespaced
      ? `${prefix}/namespaces/{namespace}/${kind.plural}`
      : `${prefix}/${kind.plural}`;
    const schema = reference(type);
    const listSchema = list ? reference(list) : schema;
    const gvk = { group, version, kind: kind.kind };
    if (kind.namespaced) {
      paths[`${prefix}/${kind.plural}`] = { get: operation('list', gvk, listSchema) };
    }
    paths[collection] = {
      get: operation('list', gvk, listSchema),
      post: operation('post', gvk, schema, BODY_TYPES),
      delete: operation('deletecollection', gvk, schema),
      parameters: pathParameters(kind, false),
    };
    paths[`${collection}/{name}`] = itemPath(kind, gvk, schema, true);
    if (kind.status) paths[`${collection}/{name}/status`] = itemPath(kind, gvk, schema, false);
    if (kind.scale && scale) {
      const scaleKind = { group: 'autoscaling', version: 'v1', kind: 'Scale' };
      paths[`${collection}/{name}/scale`] = itemPath(kind, scaleKind, reference(scale), false);
    }
  }
  for (let type = pending.pop(); type !== undefined; type = pending.pop()) {
    let described = descriptions.get(type.package);
    if (!described) {
      described = await loadDescriptions(type.package);
      descriptions.set(type.package, described);
    }
    components.set(openapiName(type), objectSchema(type, described[type.short] ?? {}, valueSchema));
  }
  const schemas = Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1)));
  for (const kind of own) {
    const type = types.kind(apiVersion, kind.kind);
    const list = types.kind(apiVersion, `${kind.kind}List`);
    for (const one of [type, list]) {
      const schema = one && schemas[openapiName(one)];
      if (schema) schema['x-kubernetes-group-version-kind'] = [{ group, version, kind: one.short }];
    }
  }
  return {
    openapi: '3.0.0',
    info: { title: 'Kubernetes', version: apiVersion },
    paths,
    components: { schemas },
  };
}

/** Returns the type's name in OpenAPI: "io.k8s.api.core.v1.Pod". */
function openapiName(type: ObjectType): string {
  const prefix = PACKAGES.find((one) => one.name === type.package)?.openapi ?? type.package;
  return `${prefix}.${type.short}`;
}

function objectSchema(
  type: ObjectType,
  descriptions: Readonly<Record<string, string>>,
  valueSchema: (type: FieldType) => Schema,
): Schema {
  const required = [...type.fields.values()].filter((field) => field.required).map((field) => field.name);
  const properties: Record<string, Schema> = {};
  for (const field of type.fields.values()) {
    properties[field.name] = fieldSchema(field, descriptions[field.name], valueSchema(field.type));
  }
  return {
    ...(descriptions[''] ? { description: descriptions[''] } : {}),
    type: 'object',
    ...(required.length > 0 ? { required } : {}),
    ...(type.fields.size > 0 ? { properties } : {}),
    ...(type.atomic ? { 'x-kubernetes-map-type': 'atomic' } : {}),
  };
}

function fieldSchema(field: Field, description: string | undefined, value: Schema): Schema {
  // A reference has no siblings in OpenAPI 3.0: the properties of the field wrap it.
  const schema: Schema = '$ref' in value ? { allOf: [value] } : value;
  if (description) schema['description'] = description;
  if (field.default !== undefined) schema['default'] = field.default;
  if (field.enum.length > 0) {
    if (field.type.kind === 'list') (schema['items'] as Schema)['enum'] = field.enum;
    else schema['enum'] = field.enum;
  }
  if (field.listType) schema['x-kubernetes-list-type'] = field.listType;
  if (field.listMapKeys.length > 0) schema['x-kubernetes-list-map-keys'] = field.listMapKeys;
  if (field.atomic) schema['x-kubernetes-map-type'] = 'atomic';
  if (field.patchMergeKey) schema['x-kubernetes-patch-merge-key'] = field.patchMergeKey;
  if (field.patchStrategies.length > 0) {
    schema['x-kubernetes-patch-strategy'] = field.patchStrategies.join(',');
  }
  return schema;
}

interface GroupVersionKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

function itemPath(kind: ServedKind, gvk: GroupVersionKind, schema: Schema, whole: boolean): Schema {
  return {
    get: operation('get', gvk, schema),
    put: operation('put', gvk, schema, BODY_TYPES),
    ...(whole ? { delete: operation('delete', gvk, schema) } : {}),
    patch: operation('patch', gvk, schema, PATCH_TYPES),
    parameters: pathParameters(kind, true),
  };
}

/** Builds one operation; `bodyTypes`: it accepts a body of these content types, with fieldValidation and dryRun. */
function operation(
  action: string,
  gvk: GroupVersionKind,
  schema: Schema,
  bodyTypes: readonly string[] = [],
): Schema {
  const content = (types: readonly string[], body: Schema) =>
    Object.fromEntries(types.map((type) => [type, { schema: body }]));
  const parameters =
    bodyTypes.length === 0
      ? []
      : [
          queryParameter('dryRun', 'string', 'When present, nothing is stored. Valid value: All.'),
          queryParameter('fieldManager', 'string', 'The name of the actor that makes these changes.'),
          queryParameter(
            'fieldValidation',
            'string',
            'What happens to unknown and duplicate fields: Ignore, Warn or Strict.',
          ),
          ...(action === 'patch'
            ? [queryParameter('force', 'boolean', 'Take over fields that other managers applied.')]
            : []),
        ];
  const patchBody = { type: 'object', description: 'A patch of one of the content types.' };
  return {
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(bodyTypes.length > 0
      ? {
          requestBody: {
            required: true,
            content: content(bodyTypes, action === 'patch' ? patchBody : schema),
          },
        }
      : {}),
    responses: { '200': { description: 'OK', content: content(['application/json'], schema) } },
    'x-kubernetes-action': action,
    'x-kubernetes-group-version-kind': gvk,
  };
}

function queryParameter(name: string, type: string, description: string): Schema {
  return { name, in: 'query', description, schema: { type, uniqueItems: true } };
}

function pathParameters(kind: ServedKind, named: boolean): Schema[] {
  const parameter = (name: string, description: string) => ({
    name,
    in: 'path',
    required: true,
    description,
    schema: { type: 'string', uniqueItems: true },
  });
  return [
    ...(named ? [parameter('name', `name of the ${kind.kind}`)] : []),
    ...(kind.namespaced ? [parameter('namespace', 'the namespace of the object')] : []),
  ];
}
