import type { Json } from '../object.ts';
import type { Field, FieldType, ListType, Scalar, TypeRegistry } from './type-schema.ts';

/** How patches merge the value at one path of an object. */
export interface FieldSchema {
  /** "any": free-form JSON. */
  readonly kind: 'object' | 'map' | 'list' | 'scalar' | 'any';
  /** A member of an object that preserves unknown fields, which its schema does not declare. */
  readonly isUndeclared?: true;
  /** The type of a scalar in expressions; null for other values, and for a scalar of several types (quantities). */
  readonly scalar: ScalarType | null;
  /** Returns the schema of a member of an object or map; null for an unknown field. */
  field(name: string): FieldSchema | null;
  /** The schema of a list's items or a map's values. */
  readonly items: FieldSchema | null;
  /** Strategic merge: "merge", "replace", "retainKeys". */
  readonly patchStrategies: readonly string[];
  /** Strategic merge: the field that identifies an item of a merged list. */
  readonly mergeKey: string | null;
  /** Server-side apply; a list without a type is atomic. */
  readonly listType: ListType;
  readonly listKeys: readonly string[];
  /** Server-side apply replaces this object or map as a whole. */
  readonly atomic: boolean;
  /** The value of an absent field; undefined if it has none. */
  readonly default: Json | undefined;
}

/** Types of JSON, and of texts that stand for another type. */
export type ScalarType = 'string' | 'integer' | 'number' | 'boolean' | 'bytes' | 'timestamp' | 'duration';

/** Creates the schemas for strategic merge patches and server-side apply; null for unknown kinds. */
export function createPatchSchemas(
  types: TypeRegistry,
): (apiVersion: string, kind: string) => FieldSchema | null {
  const known = new Map<Field | FieldType, FieldSchema>();

  function schemaOf(type: FieldType, field: Field | null): FieldSchema {
    const found = known.get(field ?? type);
    if (found) return found;
    const objectType = type.kind === 'object' ? types.type(type.name) : null;
    const itemType = type.kind === 'list' ? type.items : type.kind === 'map' ? type.values : null;
    const schema: FieldSchema = {
      kind: kindOf(type),
      scalar: type.kind === 'scalar' ? (SCALARS[type.scalar] ?? null) : null,
      field(name) {
        const member = objectType?.fields.get(name);
        return member ? schemaOf(member.type, member) : schema.items;
      },
      get items() {
        return itemType ? schemaOf(itemType, null) : null;
      },
      patchStrategies: field?.patchStrategies ?? [],
      mergeKey: field?.patchMergeKey ?? null,
      listType: field?.listType ?? 'atomic',
      listKeys: field?.listMapKeys ?? [],
      atomic: field?.atomic ?? objectType?.atomic ?? false,
      default: (field?.default as Json | undefined) ?? writtenZero(field),
    };
    known.set(field ?? type, schema);
    return schema;
  }

  const roots = new Map<string, FieldSchema>();
  return (apiVersion, kind) => {
    const type = types.kind(apiVersion, kind);
    if (!type) return null;
    let root = roots.get(type.name);
    if (!root) {
      root = schemaOf({ kind: 'object', name: type.name }, null);
      roots.set(type.name, root);
    }
    return root;
  };
}

/** Upstream's schema has a default for each field that Go always writes: its zero. */
function writtenZero(field: Field | null): Json | undefined {
  if (!field?.always || field.pointer || field.type.kind !== 'scalar') return undefined;
  return ZEROS[field.type.scalar];
}

const ZEROS: Readonly<Partial<Record<Scalar, Json>>> = { string: '', bool: false, int32: 0, int64: 0 };

const SCALARS: Readonly<Partial<Record<Scalar, ScalarType>>> = {
  string: 'string',
  bool: 'boolean',
  int32: 'integer',
  int64: 'integer',
  float64: 'number',
  bytes: 'bytes',
  '@Time': 'timestamp',
  '@MicroTime': 'timestamp',
  '@Duration': 'string',
};

/** Types whose content is JSON of any shape. */
const FREE_FORM: ReadonlySet<Scalar> = new Set([
  '@RawExtension',
  '@FieldsV1',
  '@JSON',
  '@SchemaOrArray',
  '@SchemaOrBool',
  '@SchemaOrStringArray',
]);

function kindOf(type: FieldType): FieldSchema['kind'] {
  if (type.kind !== 'scalar') return type.kind;
  if (FREE_FORM.has(type.scalar)) return 'any';
  return type.scalar === '@ExtraValue' ? 'list' : 'scalar';
}
