/** The serialized form of a single value; special types with their own JSON form begin with "@". */
export type Scalar =
  | 'string'
  | 'bool'
  | 'int32'
  | 'int64'
  | 'float64'
  | 'bytes'
  | '@Quantity'
  | '@Time'
  | '@MicroTime'
  | '@Duration'
  | '@IntOrString'
  | '@RawExtension'
  | '@FieldsV1'
  | '@ExtraValue'
  | '@JSON'
  | '@SchemaOrArray'
  | '@SchemaOrBool'
  | '@SchemaOrStringArray';

/** The schema type of `@SchemaOr…` values. */
export const JSON_SCHEMA = 'apiextensions.v1.JSONSchemaProps';

/** The type of a field; an object is named by package and type: "core.v1.PodSpec". */
export type FieldType =
  | { readonly kind: 'scalar'; readonly scalar: Scalar }
  | { readonly kind: 'list'; readonly items: FieldType }
  | { readonly kind: 'map'; readonly values: FieldType }
  | { readonly kind: 'object'; readonly name: string };

/** A field in the generated modules. */
export interface FieldEntry {
  /** Protobuf field number; 0 or absent: not on the wire. */
  readonly n?: number;
  /**
   * "string", "[]T" a list, "{}T" a map with string keys, "@…" a special type, else a struct of this or another
   * package.
   */
  readonly t: string;
  /** A pointer in Go: absent and zero differ. */
  readonly p?: boolean;
  /** Always serialized, even if empty (no omitempty). */
  readonly a?: boolean;
  /** A struct that is omitted while it is zero (omitzero). */
  readonly z?: boolean;
  readonly r?: boolean;
  readonly d?: unknown;
  readonly e?: readonly string[];
  readonly ps?: string;
  readonly pk?: string;
  readonly lt?: ListType;
  readonly lk?: readonly string[];
  readonly mt?: string;
}

export type ListType = 'atomic' | 'set' | 'map';

/** One field of an object, in its JSON and its Protobuf form. */
export interface Field {
  readonly name: string;
  /** An embedded struct: its fields belong to the object in JSON, but are a separate message in Protobuf. */
  readonly inline: boolean;
  /** Protobuf field number; 0 if the field is not on the wire. */
  readonly number: number;
  readonly type: FieldType;
  /** A pointer in Go: absent and zero differ. */
  readonly pointer: boolean;
  /** Serialized even if empty. */
  readonly always: boolean;
  /** A struct that is omitted while it is zero. */
  readonly omitZero: boolean;
  readonly required: boolean;
  readonly default: unknown;
  readonly enum: readonly string[];
  readonly patchStrategies: readonly string[];
  readonly patchMergeKey: string | null;
  readonly listType: ListType | null;
  readonly listMapKeys: readonly string[];
  /** Whether server-side apply replaces this map or struct as a whole; null: as its type says. */
  readonly atomic: boolean | null;
}

/** A struct of the API. */
export interface ObjectType {
  /** "core.v1.PodSpec" */
  readonly name: string;
  /** "core.v1" */
  readonly package: string;
  /** "PodSpec" */
  readonly short: string;
  /** Replaced as a whole by server-side apply. */
  readonly atomic: boolean;
  /** By JSON name, including the fields of embedded structs. */
  readonly fields: ReadonlyMap<string, Field>;
  /** In the order of the source; an embedded struct is one field. */
  readonly declared: readonly Field[];
  /** By Protobuf field number, in ascending order. */
  readonly wire: ReadonlyMap<number, Field>;
}

/** The types of the API, each parsed on first use. */
export interface TypeRegistry {
  /** Returns the type of a kind; null if it is not described. Options (DeleteOptions …) exist in every group. */
  kind(apiVersion: string, kind: string): ObjectType | null;
  /** Throws Error for an unknown name. */
  type(name: string): ObjectType;
}

/** A package of types: the export of a generated module, and its names. */
export interface TypePackage {
  /** "core.v1" */
  readonly name: string;
  /** "apps/v1"; "v1" */
  readonly apiVersion: string;
  /** Name of the package in OpenAPI: "io.k8s.api.core.v1" */
  readonly openapi: string;
  readonly kinds: readonly string[];
  /** JSON: types by name, each a map of FieldEntry; the key "+" marks an atomic struct, "+Name" an embedded one. */
  readonly types: string;
}

/** Builds a registry over packages, without parsing them. */
export function createTypeRegistry(packages: readonly TypePackage[]): TypeRegistry {
  const byName = new Map(packages.map((one) => [one.name, one]));
  const meta = byName.get('meta.v1');
  const parsed = new Map<string, Record<string, Record<string, FieldEntry | 'atomic'>>>();
  const types = new Map<string, ObjectType>();

  function type(name: string): ObjectType {
    const known = types.get(name);
    if (known) return known;
    const dot = name.lastIndexOf('.');
    const packageName = name.slice(0, dot);
    const short = name.slice(dot + 1);
    let entries = parsed.get(packageName);
    if (!entries) {
      entries = JSON.parse(byName.get(packageName)?.types ?? '{}') as Record<
        string,
        Record<string, FieldEntry | 'atomic'>
      >;
      parsed.set(packageName, entries);
    }
    const entry = entries[short];
    if (!entry) throw new Error(`the API schema has no type ${name}`);
    const declared = Object.entries(entry).flatMap(([key, field]) =>
      typeof field === 'string' ? [] : [readField(key, field, packageName)],
    );
    const fields = new Map<string, Field>();
    for (const field of declared) {
      if (!field.inline) fields.set(field.name, field);
      else if (field.type.kind === 'object') {
        for (const [inner, described] of type(field.type.name).fields) fields.set(inner, described);
      }
    }
    const built: ObjectType = {
      name,
      package: packageName,
      short,
      atomic: entry['+'] === 'atomic',
      fields,
      declared,
      wire: new Map(
        declared
          .filter((field) => field.number > 0)
          .sort((a, b) => a.number - b.number)
          .map((field) => [field.number, field]),
      ),
    };
    types.set(name, built);
    return built;
  }

  return {
    type,
    kind(apiVersion, kind) {
      const owner = packages.find((one) => one.apiVersion === apiVersion && one.kinds.includes(kind));
      if (owner) return type(`${owner.name}.${kind}`);
      const isMeta =
        meta?.kinds.includes(kind) &&
        (kind.endsWith('Options') || apiVersion === 'v1' || apiVersion === 'meta.k8s.io/v1');
      return isMeta ? type(`meta.v1.${kind}`) : null;
    },
  };
}

function readField(key: string, entry: FieldEntry, packageName: string): Field {
  const inline = key.startsWith('+');
  return {
    name: inline ? key.slice(1) : key,
    inline,
    number: entry.n ?? 0,
    type: readType(entry.t, packageName),
    pointer: entry.p ?? false,
    always: entry.a ?? false,
    omitZero: entry.z ?? false,
    required: entry.r ?? false,
    default: entry.d,
    enum: entry.e ?? [],
    patchStrategies: entry.ps ? entry.ps.split(',') : [],
    patchMergeKey: entry.pk ?? null,
    listType: entry.lt ?? null,
    listMapKeys: entry.lk ?? [],
    atomic: entry.mt === undefined ? null : entry.mt === 'atomic',
  };
}

const PLAIN = new Set<string>(['string', 'bool', 'int32', 'int64', 'float64', 'bytes']);

function readType(text: string, packageName: string): FieldType {
  if (text.startsWith('[]')) return { kind: 'list', items: readType(text.slice(2), packageName) };
  if (text.startsWith('{}')) return { kind: 'map', values: readType(text.slice(2), packageName) };
  if (text.startsWith('@') || PLAIN.has(text)) return { kind: 'scalar', scalar: text as Scalar };
  return { kind: 'object', name: text.includes('.') ? text : `${packageName}.${text}` };
}
