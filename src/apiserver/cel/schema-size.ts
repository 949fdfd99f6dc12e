import { isEmbedded, RESOURCE_FIELDS, type TypeSchema } from './schema-type.ts';

/** The largest request (k8s.io/apiserver/pkg/apis/cel, MaxRequestSizeBytes). */
export const MAX_REQUEST = 3 * 1024 * 1024;

/** How large the values of a schema can be. */
export interface ValueSize {
  /** The most characters, bytes, items or members; 0 for a value that has none. */
  readonly max: number;
  /** The fewest bytes of its JSON. */
  readonly minBytes: number;
  readonly fields?: ReadonlyMap<string, ValueSize>;
  /** Of the items of a list, and of the values of a map. */
  readonly item?: ValueSize;
  /** Of the keys of a map. */
  readonly key?: ValueSize;
}

/** The parts of a schema that limit sizes. */
export interface SizeSchema extends TypeSchema {
  readonly properties?: Readonly<Record<string, SizeSchema>>;
  readonly additionalProperties?: boolean | SizeSchema;
  readonly items?: SizeSchema;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly enum?: readonly unknown[];
  readonly required?: readonly string[];
  readonly default?: unknown;
}

/** A text may have four bytes for each character that its schema allows. */
const BYTES_PER_CHARACTER = 4;
const QUOTES = 2;

/**
 * Returns the sizes of a schema's values, from its limits and from what fits into a request; null if rules do not see
 * them. Source: k8s.io/apiserver/pkg/cel/common/schemas.go.
 */
export function schemaSize(schema: SizeSchema, isResource: boolean): ValueSize | null {
  const { type, maxLength, items, additionalProperties } = schema;
  if (schema['x-kubernetes-int-or-string'] === true) {
    const max = maxLength === undefined ? MAX_REQUEST - QUOTES : maxLength * BYTES_PER_CHARACTER;
    return { max, minBytes: 1 };
  }
  switch (type) {
    case 'array': {
      const item = items ? schemaSize(items, isEmbedded(items)) : null;
      return item && { max: schema.maxItems ?? fitting(item.minBytes + 1), minBytes: 2, item };
    }
    case 'object':
      if (typeof additionalProperties === 'object' && !isResource) {
        const item = schemaSize(additionalProperties, isEmbedded(additionalProperties));
        const key = { max: 0, minBytes: 2 };
        return item && { max: schema.maxProperties ?? fitting(item.minBytes + 6), minBytes: 2, item, key };
      }
      return objectSize(schema, isResource);
    case 'string':
      return textSize(schema);
    case 'boolean':
      return { max: 0, minBytes: 4 };
    case 'number':
    case 'integer':
      return { max: 0, minBytes: 1 };
    default:
      return null;
  }
}

/** How many values of this size fit into a request, within brackets. */
const fitting = (bytes: number): number => Math.floor((MAX_REQUEST - 2) / bytes);

function objectSize(schema: SizeSchema, isResource: boolean): ValueSize {
  const fields = new Map<string, ValueSize>();
  let minBytes = 2;
  const properties: Readonly<Record<string, SizeSchema>> = {
    ...schema.properties,
    ...(isResource ? RESOURCE_FIELDS : {}),
  };
  for (const [name, member] of Object.entries(properties)) {
    const size = schemaSize(member, isEmbedded(member));
    if (!size) continue;
    fields.set(name, size);
    const isRequired = schema.required?.includes(name) === true && member.default === undefined;
    if (isRequired) minBytes += name.length + size.minBytes + 4;
  }
  return { max: 0, minBytes, fields };
}

function textSize({ format, maxLength, enum: choices }: SizeSchema): ValueSize {
  switch (format) {
    case 'byte':
      return { max: maxLength ?? MAX_REQUEST - QUOTES, minBytes: 2 };
    case 'duration':
      return { max: 32, minBytes: 3 };
    case 'date':
      return { max: 12, minBytes: 12 };
    case 'date-time':
      return { max: 32, minBytes: 21 };
    default: {
      if (maxLength !== undefined) return { max: maxLength * BYTES_PER_CHARACTER, minBytes: 2 };
      const longest = Math.max(
        0,
        ...(choices ?? []).map((one) => (typeof one === 'string' ? one.length : 0)),
      );
      return { max: choices && choices.length > 0 ? longest : MAX_REQUEST - QUOTES, minBytes: 2 };
    }
  }
}
