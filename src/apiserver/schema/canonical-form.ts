import { canonicalQuantity } from '../../kube/quantity-text.ts';
import type { Field, FieldType, ObjectType, Scalar, TypeRegistry } from './type-schema.ts';

/** Lists that have a default, but not if they are given empty; validation then refuses the empty ones. */
const KEPT_EMPTY: Readonly<Record<string, string>> = { 'autoscaling.v2.HPAScalingRules': 'policies' };

/** Sets one type's defaults, before those of nested types. */
export type TypeDefaults = (object: Record<string, unknown>) => void;

/**
 * Converts an object to the form in which the Go types would serialize it: removes unknown fields and nulls, treats
 * zeros of non-pointer fields as absent, adds structs that are always serialized, makes quantities canonical. Sets each
 * type's defaults on the way down: those of the schema, then `defaults`, by type name.
 *
 * A client may send a zero for "not set" (every typed client does in Protobuf); without this step, defaults would treat
 * it as a value.
 */
export function canonicalise(
  types: TypeRegistry,
  type: ObjectType,
  object: Record<string, unknown>,
  defaults: Readonly<Record<string, TypeDefaults>>,
): void {
  const isKept = (name: string) => KEPT_EMPTY[type.name] === name && Array.isArray(object[name]);
  for (const key of Object.keys(object)) {
    const field = type.fields.get(key);
    if (!field || (isAbsent(field, object[key]) && !isKept(key))) delete object[key];
  }
  for (const field of type.fields.values()) {
    if (field.default !== undefined && object[field.name] === undefined && isLeaf(field.type)) {
      object[field.name] = structuredClone(field.default);
    }
  }
  defaults[type.name]?.(object);
  for (const field of type.fields.values()) {
    const value = object[field.name];
    if (value === undefined || value === null) {
      const zero = writtenZero(field);
      if (zero === undefined) {
        if (value === null && field.type.kind === 'list') continue;
        // To delete even an absent member makes the engine keep the object as a slow hash table.
        if (!Object.hasOwn(object, field.name)) continue;
        delete object[field.name];
        continue;
      }
      object[field.name] = zero;
    }
    object[field.name] = canonicalValue(types, field.type, object[field.name], defaults);
    if (isKept(field.name)) continue;
    if (isAbsent(field, object[field.name])) delete object[field.name];
    else if (isEmptyList(field, object[field.name])) object[field.name] = null;
  }
}

/** Protobuf, in which upstream stores objects, does not distinguish an empty list from an absent one. */
function isEmptyList(field: Field, value: unknown): boolean {
  return field.type.kind === 'list' && !field.pointer && Array.isArray(value) && value.length === 0;
}

function canonicalValue(
  types: TypeRegistry,
  type: FieldType,
  value: unknown,
  defaults: Readonly<Record<string, TypeDefaults>>,
): unknown {
  switch (type.kind) {
    case 'scalar':
      if (type.scalar === '@Quantity' && (typeof value === 'string' || typeof value === 'number')) {
        return canonicalQuantity(value) ?? value;
      }
      return value === null && !NULLABLE.has(type.scalar) ? (ZEROS[type.scalar] ?? null) : value;
    case 'object': {
      const object = isObject(value) ? value : {};
      canonicalise(types, types.type(type.name), object, defaults);
      return object;
    }
    case 'list':
      return Array.isArray(value) && (!isPlain(type.items) || value.includes(null))
        ? value.map((item) => canonicalValue(types, type.items, item, defaults))
        : value;
    case 'map':
      if (isObject(value)) {
        for (const key of Object.keys(value)) {
          value[key] = canonicalValue(types, type.values, value[key], defaults);
        }
      }
      return value;
  }
}

/** Reports whether Go would omit the field. */
function isAbsent(field: Field, value: unknown): boolean {
  if (value === undefined) return true;
  if (value === null) return field.pointer || field.omitZero || !(field.always || isStruct(field));
  if (field.pointer || field.always) return false;
  switch (field.type.kind) {
    case 'list':
      return Array.isArray(value) && value.length === 0;
    case 'map':
      return isObject(value) && Object.keys(value).length === 0;
    case 'object':
      return field.omitZero && isObject(value) && Object.keys(value).length === 0;
    case 'scalar':
      if (Array.isArray(value)) return value.length === 0;
      return value === ZEROS[field.type.scalar] && !STRUCTS.has(field.type.scalar);
  }
}

function isStruct({ type }: Field): boolean {
  return type.kind === 'scalar' && STRUCTS.has(type.scalar);
}

/** Returns what Go serializes for a field without a value; undefined if it omits the field. */
function writtenZero(field: Field): unknown {
  if (field.pointer || field.omitZero) return undefined;
  if (field.type.kind === 'object') return {};
  if (!field.always) {
    return field.type.kind === 'scalar' && isStruct(field) ? ZEROS[field.type.scalar] : undefined;
  }
  return field.type.kind === 'scalar' ? (ZEROS[field.type.scalar] ?? null) : null;
}

const ZEROS: Readonly<Partial<Record<Scalar, unknown>>> = {
  string: '',
  bytes: '',
  bool: false,
  int32: 0,
  int64: 0,
  float64: 0,
  '@Quantity': '0',
  '@Duration': '0s',
  '@IntOrString': 0,
  '@Time': null,
  '@MicroTime': null,
  '@RawExtension': null,
  '@JSON': null,
};

/** Structs in Go: omitempty does not omit them. */
const STRUCTS: ReadonlySet<Scalar> = new Set([
  '@Quantity',
  '@Time',
  '@MicroTime',
  '@Duration',
  '@IntOrString',
  '@RawExtension',
]);

const NULLABLE: ReadonlySet<Scalar> = new Set(['@Time', '@MicroTime', '@RawExtension', '@JSON']);

/** Reports whether values have a default of their own, and none of nested fields. */
function isLeaf(type: FieldType): boolean {
  return type.kind === 'scalar';
}

/** Reports whether nothing below needs processing. */
function isPlain(type: FieldType): boolean {
  return type.kind === 'scalar' && type.scalar !== '@Quantity' && type.scalar !== 'string';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
