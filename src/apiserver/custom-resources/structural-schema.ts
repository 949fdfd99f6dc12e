import { ownMember, setOwnMember } from '../../lib/own-member.ts';
import { isObject, type JsonObject } from '../object.ts';

/** apiextensions.k8s.io/v1 JSONSchemaProps: the fields used for validation. */
export interface StructuralSchema {
  readonly type?: string;
  readonly format?: string;
  readonly description?: string;
  readonly nullable?: boolean;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, StructuralSchema>>;
  readonly additionalProperties?: boolean | StructuralSchema;
  readonly items?: StructuralSchema;
  readonly required?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: boolean;
  readonly exclusiveMaximum?: boolean;
  readonly multipleOf?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly allOf?: readonly StructuralSchema[];
  readonly anyOf?: readonly StructuralSchema[];
  readonly oneOf?: readonly StructuralSchema[];
  readonly not?: StructuralSchema;
  readonly 'x-kubernetes-preserve-unknown-fields'?: boolean;
  readonly 'x-kubernetes-embedded-resource'?: boolean;
  readonly 'x-kubernetes-int-or-string'?: boolean;
  readonly 'x-kubernetes-list-type'?: 'atomic' | 'set' | 'map';
  readonly 'x-kubernetes-list-map-keys'?: readonly string[];
  readonly 'x-kubernetes-map-type'?: 'atomic' | 'granular';
  readonly 'x-kubernetes-validations'?: readonly ValidationRule[];
}

/** A CEL rule about a value ("self") and, on updates, its old value ("oldSelf"). */
export interface ValidationRule {
  readonly rule: string;
  readonly message?: string;
  readonly messageExpression?: string;
  readonly reason?: string;
  readonly fieldPath?: string;
  readonly optionalOldSelf?: boolean;
}

/** Returns the schema of an object's member; null if the schema does not allow it. */
export function memberSchema(schema: StructuralSchema, name: string): StructuralSchema | null {
  const own = schema.properties;
  if (own && Object.hasOwn(own, name)) return own[name] ?? null;
  return typeof schema.additionalProperties === 'object' ? schema.additionalProperties : null;
}

/** Returns "spec.a" for a property, "spec[a]" for a key of a map, as upstream names them in the errors of rules and lists. */
export function memberPath(schema: StructuralSchema, path: string, name: string): string {
  if (!schema.properties || !Object.hasOwn(schema.properties, name)) return `${path}[${name}]`;
  return path === '' ? name : `${path}.${name}`;
}

/** Members of every object: the type of the object validates them, not its schema. */
export const TYPE_META = ['apiVersion', 'kind', 'metadata'] as const;

/** Reports whether a schema preserves members that it does not name. */
export const preservesUnknown = (schema: StructuralSchema): boolean =>
  schema['x-kubernetes-preserve-unknown-fields'] === true;

/** Of members that `additionalProperties: true` admits, values and lists stay, and maps lose what is in them. */
const UNSPECIFIED: StructuralSchema = {
  get items() {
    return UNSPECIFIED;
  },
};

/**
 * Removes the members of `value` that its schema does not name, and returns their paths ("spec.a[0].b"), sorted.
 * Source: apiextensions-apiserver/pkg/apiserver/schema/pruning.
 */
export function pruneValue(schema: StructuralSchema, value: unknown, isRoot = true): string[] {
  const pruned: string[] = [];
  prune(schema, value, '', isRoot, pruned);
  return pruned.sort();
}

function prune(
  schema: StructuralSchema,
  value: unknown,
  path: string,
  isRoot: boolean,
  pruned: string[],
): void {
  if (Array.isArray(value)) {
    if (schema.items === undefined) return;
    const { items } = schema;
    const isResource = items['x-kubernetes-embedded-resource'] === true;
    for (const [index, item] of value.entries()) prune(items, item, `${path}[${index}]`, isResource, pruned);
    return;
  }
  if (!isObject(value)) return;
  for (const key of Object.keys(value)) {
    if (isRoot && (TYPE_META as readonly string[]).includes(key)) continue;
    const member = memberSchema(schema, key);
    const at = path === '' ? key : `${path}.${key}`;
    if (member) prune(member, value[key], at, member['x-kubernetes-embedded-resource'] === true, pruned);
    else if (preservesUnknown(schema)) continue;
    else if (schema.additionalProperties === true) prune(UNSPECIFIED, value[key], at, false, pruned);
    else {
      pruned.push(at);
      delete value[key];
    }
  }
}

/** Returns the objects in a value that have the metadata of an object, with their paths ("spec.template"). */
export function embeddedResources(
  schema: StructuralSchema,
  value: unknown,
  path = '',
): { readonly path: string; readonly object: JsonObject }[] {
  if (Array.isArray(value)) {
    const { items } = schema;
    return items ? value.flatMap((item, i) => embeddedResources(items, item, `${path}[${i}]`)) : [];
  }
  if (!isObject(value)) return [];
  const own = schema['x-kubernetes-embedded-resource'] === true ? [{ path, object: value }] : [];
  const below = Object.entries(value).flatMap(([name, member]) => {
    const known = memberSchema(schema, name);
    return known ? embeddedResources(known, member, path === '' ? name : `${path}.${name}`) : [];
  });
  return [...own, ...below];
}

/** Reports whether a value is null where its schema has none, so that it counts as absent. */
const isNoValue = (schema: StructuralSchema, value: unknown): boolean =>
  value === null && schema.nullable !== true;

/**
 * Sets the defaults of absent members; null counts as absent for a member, an item or a value of a map that is not nullable
 * and has a default. Source: apiextensions-apiserver/pkg/apiserver/schema/defaulting.
 */
export function applyDefaults(schema: StructuralSchema, value: unknown, isResource = true): void {
  if (Array.isArray(value)) {
    const { items } = schema;
    if (!items) return;
    for (const [index, item] of value.entries()) {
      if (isNoValue(items, item) && items.default !== undefined)
        value[index] = structuredClone(items.default);
      applyDefaults(items, value[index], false);
    }
    return;
  }
  if (!isObject(value)) return;
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    if (isResource && (TYPE_META as readonly string[]).includes(name)) continue;
    const given = ownMember(value, name);
    if ((given === undefined || isNoValue(member, given)) && member.default !== undefined)
      setOwnMember(value, name, structuredClone(member.default) as JsonObject[string]);
    applyDefaults(member, ownMember(value, name), false);
  }
  const { additionalProperties: values } = schema;
  if (typeof values !== 'object') return;
  for (const [name, member] of Object.entries(value)) {
    if (schema.properties && Object.hasOwn(schema.properties, name)) continue;
    if (isNoValue(values, member) && values.default !== undefined)
      setOwnMember(value, name, structuredClone(values.default) as JsonObject[string]);
    applyDefaults(values, ownMember(value, name), false);
  }
}

/** Reports whether a schema contains a default. */
export const hasDefaults = (schema: StructuralSchema): boolean =>
  below(schema).some((one) => one.default !== undefined || hasDefaults(one));

/** Reports whether a schema contains a rule. */
export const hasRules = (schema: StructuralSchema): boolean =>
  (schema['x-kubernetes-validations'] ?? []).length > 0 || below(schema).some(hasRules);

const hasResources = (schema: StructuralSchema): boolean =>
  schema['x-kubernetes-embedded-resource'] === true || below(schema).some(hasResources);

/** Returns the schemas of members, items and values of maps. */
function below({ items, properties, additionalProperties }: StructuralSchema): StructuralSchema[] {
  return [
    ...Object.values(properties ?? {}),
    ...(items ? [items] : []),
    ...(typeof additionalProperties === 'object' ? [additionalProperties] : []),
  ];
}

/** Returns a schema that requires the apiVersion and kind of embedded resources; itself if it has none. */
export function withRequiredHeads(schema: StructuralSchema): StructuralSchema {
  if (!hasResources(schema)) return schema;
  const { items, properties, additionalProperties, required = [] } = schema;
  const isResource = schema['x-kubernetes-embedded-resource'] === true;
  return {
    ...schema,
    ...(isResource ? { required: [...new Set([...required, 'apiVersion', 'kind'])] } : {}),
    ...(items ? { items: withRequiredHeads(items) } : {}),
    ...(properties
      ? {
          properties: Object.fromEntries(
            Object.entries(properties).map(([name, one]) => [name, withRequiredHeads(one)]),
          ),
        }
      : {}),
    ...(typeof additionalProperties === 'object'
      ? { additionalProperties: withRequiredHeads(additionalProperties) }
      : {}),
  };
}

/**
 * Removes nulls of members, and of values of maps, that are neither nullable nor have a default, as upstream does when it
 * decodes an object. Items of lists keep theirs.
 */
export function dropNulls(schema: StructuralSchema, value: unknown, isResource = true): void {
  if (Array.isArray(value)) {
    if (schema.items) for (const item of value) dropNulls(schema.items, item, false);
    return;
  }
  if (!isObject(value)) return;
  for (const [name, member] of Object.entries(value)) {
    if (isResource && (TYPE_META as readonly string[]).includes(name)) continue;
    const known = memberSchema(schema, name);
    if (!known) continue;
    if (isNoValue(known, member) && known.default === undefined) delete value[name];
    else dropNulls(known, member, false);
  }
}
