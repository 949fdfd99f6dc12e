import { canonicalQuantity } from '../../kube/quantity-text.ts';
import { jsonType } from '../object.ts';
import type { FieldType, ObjectType, Scalar, TypeRegistry } from './type-schema.ts';

/**
 * Finds the first value that does not fit the type of its field, in the words of Go's decoder (`json: cannot unmarshal
 * string into Go struct field DeploymentSpec.spec.replicas of type int32`), because users search the web for them; null
 * if all fit.
 */
export function findTypeError(types: TypeRegistry, type: ObjectType, object: unknown): string | null {
  return checkObject(types, type, object, []);
}

function checkObject(types: TypeRegistry, type: ObjectType, value: unknown, path: string[]): string | null {
  for (const [key, field] of Object.entries(value as Record<string, unknown>)) {
    const described = type.fields.get(key);
    if (!described || field === null) continue;
    path.push(key);
    const error = checkValue(types, described.type, field, type.short, path);
    if (error) return error;
    path.pop();
  }
  return null;
}

function checkValue(
  types: TypeRegistry,
  type: FieldType,
  value: unknown,
  owner: string,
  path: string[],
): string | null {
  if (value === null) return null;
  const mismatch = (name = goType(type, types)) =>
    `json: cannot unmarshal ${jsonName(value)} into Go struct field ${owner}.${path.join('.')} of type ${name}`;
  switch (type.kind) {
    case 'scalar':
      return checkScalar(type.scalar, value, mismatch);
    case 'object':
      return isObject(value) ? checkObject(types, types.type(type.name), value, path) : mismatch();
    case 'list':
      if (!Array.isArray(value)) return mismatch();
      return firstOf(value, (item) => checkValue(types, type.items, item, owner, path));
    case 'map':
      if (!isObject(value)) return mismatch();
      return firstOf(Object.values(value), (item) => checkValue(types, type.values, item, owner, path));
  }
}

function checkScalar(scalar: Scalar, value: unknown, mismatch: (name?: string) => string): string | null {
  switch (scalar) {
    case 'string':
      return typeof value === 'string' ? null : mismatch();
    case 'bool':
      return typeof value === 'boolean' ? null : mismatch();
    case 'float64':
      return typeof value === 'number' ? null : mismatch();
    case 'int32':
      return isInt32(value) ? null : mismatch();
    case 'int64':
      return Number.isInteger(value) && Math.abs(value as number) < 2 ** 63 ? null : mismatch();
    case 'bytes':
      if (typeof value !== 'string') return mismatch();
      return base64Error(value);
    case '@Quantity':
      if (typeof value === 'string' || typeof value === 'number') {
        return canonicalQuantity(value) === null
          ? "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
          : null;
      }
      return mismatch();
    case '@Time':
    case '@MicroTime':
      if (typeof value !== 'string') return mismatch();
      return TIME.test(value) && !Number.isNaN(Date.parse(value))
        ? null
        : `parsing time ${JSON.stringify(JSON.stringify(value))} as "2006-01-02T15:04:05Z07:00": cannot parse ${JSON.stringify(value)} as a time`;
    case '@IntOrString':
      if (typeof value === 'string' || isInt32(value)) return null;
      if (Number.isInteger(value)) return mismatch('int32');
      return `json: cannot unmarshal ${jsonName(value)} into Go value of type int32`;
    case '@Duration':
      return typeof value === 'string' ? null : mismatch();
    case '@ExtraValue':
      return Array.isArray(value) && value.every((item) => typeof item === 'string') ? null : mismatch();
    case '@RawExtension':
    case '@JSON':
    case '@SchemaOrArray':
    case '@SchemaOrBool':
    case '@SchemaOrStringArray':
    case '@FieldsV1':
      return null;
  }
}

const isInt32 = (value: unknown) => typeof value === 'number' && value === (value | 0);

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;

/** Go's base64 reports the first invalid byte. */
function base64Error(text: string): string | null {
  const clean = text.replace(/[\r\n]/g, '');
  const good = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?/.exec(clean)?.[0].length ?? 0;
  if (good === clean.length) return null;
  const bad = /^[A-Za-z0-9+/]*/.exec(clean)?.[0].length ?? 0;
  return `illegal base64 data at input byte ${bad === clean.length ? Math.max(0, bad - (bad % 4)) : bad}`;
}

function jsonName(value: unknown): string {
  const isLarge = typeof value === 'number' && value !== (value | 0);
  return isLarge ? `number ${value}` : jsonType(value);
}

/** Formats the type like Go: "v1.Container", "[]v1.Container", "map[string]string". */
function goType(type: FieldType, types: TypeRegistry): string {
  switch (type.kind) {
    case 'list':
      return `[]${goType(type.items, types)}`;
    case 'map':
      return `map[string]${goType(type.values, types)}`;
    case 'object': {
      const { package: name, short } = types.type(type.name);
      return `${name.slice(name.lastIndexOf('.') + 1)}.${short}`;
    }
    case 'scalar':
      return GO_NAMES[type.scalar] ?? type.scalar;
  }
}

const GO_NAMES: Readonly<Partial<Record<Scalar, string>>> = {
  bytes: '[]uint8',
  '@Quantity': 'resource.Quantity',
  '@Time': 'v1.Time',
  '@MicroTime': 'v1.MicroTime',
  '@Duration': 'v1.Duration',
  '@IntOrString': 'intstr.IntOrString',
  '@ExtraValue': 'v1.ExtraValue',
};

function firstOf<T>(items: readonly T[], check: (item: T) => string | null): string | null {
  for (const item of items) {
    const error = check(item);
    if (error) return error;
  }
  return null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
