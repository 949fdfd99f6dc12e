import { scalarType } from '../cel/scalar-type.ts';
import type { Json } from '../object.ts';
import type { FieldSchema } from '../schema/patch-schema.ts';
import { memberSchema, preservesUnknown, type StructuralSchema } from './structural-schema.ts';

/** Free-form JSON: every member is its own field. */
const ANY: FieldSchema = {
  kind: 'any',
  scalar: null,
  field: () => null,
  items: null,
  patchStrategies: [],
  mergeKey: null,
  listType: 'atomic',
  listKeys: [],
  atomic: false,
  default: undefined,
};
/** A field that a schema preserves without declaring it. */
const UNDECLARED: FieldSchema = { ...ANY, isUndeclared: true };
const SCALAR: FieldSchema = { ...ANY, kind: 'scalar' };
const STRING: FieldSchema = { ...SCALAR, scalar: 'string' };

/**
 * Builds the schema that server-side apply uses for the fields of a custom object. `metadata` is the schema of every
 * object's metadata. Source: apiextensions-apiserver/pkg/controller/openapi/builder and structured-merge-diff's schema
 * conversion.
 */
export function customFieldSchema(schema: StructuralSchema, metadata: FieldSchema | null): FieldSchema {
  const root = fieldSchema(schema, false);
  const isFree = root.kind === 'any' && preservesUnknown(schema);
  const field = (name: string) => (isFree ? UNDECLARED : root.field(name));
  return {
    ...root,
    kind: 'object',
    field: (name) =>
      name === 'metadata' ? metadata : name === 'apiVersion' || name === 'kind' ? STRING : field(name),
  };
}

/** `isOpen`: a schema around this one preserves unknown fields, and so do all inside of it (kube-openapi's schemaconv). */
function fieldSchema(schema: StructuralSchema, isOpen: boolean): FieldSchema {
  const type = typeSchema(schema, isOpen || preservesUnknown(schema));
  return schema.default === undefined ? type : { ...type, default: schema.default as Json };
}

function typeSchema(schema: StructuralSchema, isOpen: boolean): FieldSchema {
  // It has no type: validation refuses what is neither.
  if (schema['x-kubernetes-int-or-string']) return ANY;
  switch (schema.type) {
    case 'array':
      return {
        ...ANY,
        kind: 'list',
        items: schema.items ? fieldSchema(schema.items, isOpen) : ANY,
        listType: schema['x-kubernetes-list-type'] ?? 'atomic',
        listKeys: schema['x-kubernetes-list-map-keys'] ?? [],
      };
    case 'object':
    case undefined:
      return objectSchema(schema, isOpen);
    default:
      return { ...SCALAR, scalar: scalarType(schema) };
  }
}

function objectSchema(schema: StructuralSchema, isOpen: boolean): FieldSchema {
  const atomic = schema['x-kubernetes-map-type'] === 'atomic';
  const values = schema.additionalProperties;
  if (!schema.properties && values) {
    const items = values === true ? ANY : fieldSchema(values, isOpen);
    return { ...ANY, kind: 'map', items, field: () => items, atomic };
  }
  if (!schema.properties) return { ...ANY, atomic };
  const members = new Map<string, FieldSchema>();
  return {
    ...ANY,
    kind: 'object',
    atomic,
    field(name) {
      let member = members.get(name);
      if (!member) {
        const own = memberSchema(schema, name);
        if (!own) return isOpen ? UNDECLARED : null;
        member = fieldSchema(own, isOpen);
        members.set(name, member);
      }
      return member;
    },
  };
}
