import { canonicalQuantity } from '../../kube/quantity-text.ts';
import type { FieldType, ObjectType, TypeRegistry } from './type-schema.ts';

type Path = (string | number)[];

/**
 * Removes the fields of `object` that its type does not have, and returns them as a strict decoder reports them
 * (`unknown field "spec.containers[0].foo"`). Also normalizes what Go's decoding normalizes: null means absent,
 * quantities become canonical.
 */
export function pruneFields(types: TypeRegistry, type: ObjectType, object: object): string[] {
  const problems: string[] = [];
  pruneObject(types, type, object as Record<string, unknown>, [], problems);
  return problems;
}

function pruneObject(
  types: TypeRegistry,
  type: ObjectType,
  object: Record<string, unknown>,
  path: Path,
  problems: string[],
): void {
  for (const key of Object.keys(object)) {
    const field = type.fields.get(key);
    const value = object[key];
    if (!field) {
      path.push(key);
      problems.push(`unknown field "${pathText(path)}"`);
      path.pop();
      delete object[key];
    } else if (value === null) {
      delete object[key];
    } else {
      path.push(key);
      object[key] = pruneValue(types, field.type, value, path, problems);
      path.pop();
    }
  }
}

function pruneValue(
  types: TypeRegistry,
  type: FieldType,
  value: unknown,
  path: Path,
  problems: string[],
): unknown {
  switch (type.kind) {
    case 'scalar':
      if (type.scalar === '@Quantity' && (typeof value === 'string' || typeof value === 'number')) {
        return canonicalQuantity(value) ?? value;
      }
      return value;
    case 'object':
      if (isObject(value)) pruneObject(types, types.type(type.name), value, path, problems);
      return value;
    case 'list':
      if (Array.isArray(value) && !isPlain(type.items)) {
        value.forEach((item, index) => {
          path.push(index);
          value[index] = pruneValue(types, type.items, item ?? emptyOf(type.items), path, problems);
          path.pop();
        });
      }
      return value;
    case 'map':
      if (isObject(value) && !isPlain(type.values)) {
        for (const key of Object.keys(value)) {
          path.push(key);
          value[key] = pruneValue(types, type.values, value[key] ?? emptyOf(type.values), path, problems);
          path.pop();
        }
      }
      return value;
  }
}

/** Returns what Go decodes a null item to; scalars stay null until they become canonical. */
function emptyOf(type: FieldType): unknown {
  return type.kind === 'object' ? {} : null;
}

/** Reports whether nothing below can be unknown or need normalization. */
function isPlain(type: FieldType): boolean {
  return type.kind === 'scalar' && type.scalar !== '@Quantity';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function pathText(path: readonly (string | number)[]): string {
  return path.reduce<string>(
    (text, step) => (typeof step === 'number' ? `${text}[${step}]` : text === '' ? step : `${text}.${step}`),
    '',
  );
}
