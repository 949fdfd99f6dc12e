import { MAGIC } from './protobuf-decode.ts';
import { FIXED64, VARINT, WireWriter } from './protobuf-wire.ts';
import {
  type FieldType,
  JSON_SCHEMA,
  type ObjectType,
  type Scalar,
  type TypeRegistry,
} from './type-schema.ts';

/**
 * Encodes an object as the Go client does: the same fields in the same order, zeros that are not pointers included. An
 * object without an apiVersion is one of meta/v1's unversioned kinds (APIVersions); its envelope names no version either.
 * Throws Error when the kind is not described.
 */
export function encodeProtobuf(types: TypeRegistry, object: object): Buffer {
  const { apiVersion, kind } = object as { apiVersion?: string; kind?: string };
  const type = types.kind(apiVersion ?? 'v1', kind ?? '');
  if (!type) throw new Error(`no kind "${kind}" is registered for version "${apiVersion}"`);
  const typeMeta = new WireWriter();
  typeMeta.delimited(1, Buffer.from(apiVersion ?? ''));
  typeMeta.delimited(2, Buffer.from(kind ?? ''));
  const envelope = new WireWriter();
  envelope.raw(MAGIC);
  envelope.delimited(1, typeMeta.finish());
  envelope.delimited(2, encodeObject(types, type, object as Record<string, unknown>));
  envelope.delimited(3, new Uint8Array());
  envelope.delimited(4, new Uint8Array());
  return envelope.finish();
}

function encodeObject(types: TypeRegistry, type: ObjectType, object: Record<string, unknown>): Buffer {
  const writer = new WireWriter();
  for (const [number, field] of [...type.wire].sort(([a], [b]) => a - b)) {
    const value = field.inline ? inlineValue(types, field.type, object, field.pointer) : object[field.name];
    const missing = value === undefined || value === null;
    if (field.type.kind === 'list') {
      for (const item of missing ? [] : (value as unknown[])) {
        encodeValue(types, writer, number, field.type.items, item);
      }
    } else if (field.type.kind === 'map') {
      const map = missing ? {} : (value as Record<string, unknown>);
      for (const key of Object.keys(map).sort()) {
        const entry = new WireWriter();
        entry.delimited(1, Buffer.from(key));
        encodeValue(types, entry, 2, field.type.values, map[key]);
        writer.delimited(number, entry.finish());
      }
    } else if (!missing || (!field.pointer && !isSlice(field.type))) {
      encodeValue(types, writer, number, field.type, value);
    }
  }
  return writer.finish();
}

/** Slices of bytes are the one type that can be absent without being a pointer. */
function isSlice(type: FieldType): boolean {
  return type.kind === 'scalar' && (type.scalar === 'bytes' || type.scalar === '@ExtraValue');
}

function inlineValue(
  types: TypeRegistry,
  type: FieldType,
  object: Record<string, unknown>,
  pointer: boolean,
): unknown {
  if (type.kind !== 'object' || !pointer) return object;
  const { fields } = types.type(type.name);
  return Object.keys(object).some((key) => fields.has(key)) ? object : undefined;
}

function encodeValue(
  types: TypeRegistry,
  writer: WireWriter,
  number: number,
  type: FieldType,
  value: unknown,
): void {
  if (type.kind === 'object') {
    const nested = (value ?? {}) as Record<string, unknown>;
    writer.delimited(number, encodeObject(types, types.type(type.name), nested));
    return;
  }
  if (type.kind !== 'scalar') throw new Error('a list within a list cannot be encoded');
  switch (type.scalar) {
    case 'string':
      writer.delimited(number, Buffer.from((value as string | undefined) ?? ''));
      return;
    case 'bytes':
      writer.delimited(number, Buffer.from((value as string | undefined) ?? '', 'base64'));
      return;
    case 'bool':
      writer.tag(number, VARINT);
      writer.varint(value ? 1 : 0);
      return;
    case 'int32':
    case 'int64':
      writer.tag(number, VARINT);
      writer.varint((value as number | undefined) ?? 0);
      return;
    case 'float64':
      writer.tag(number, FIXED64);
      writer.double((value as number | undefined) ?? 0);
      return;
    default:
      writer.delimited(number, encodeSpecial(types, type.scalar, value));
  }
}

function encodeSpecial(types: TypeRegistry, scalar: Scalar, value: unknown): Buffer {
  const writer = new WireWriter();
  switch (scalar) {
    case '@Quantity':
      writer.delimited(1, Buffer.from(String(value ?? '0')));
      break;
    case '@IntOrString': {
      const isText = typeof value === 'string';
      writer.tag(1, VARINT);
      writer.varint(isText ? 1 : 0);
      writer.tag(2, VARINT);
      writer.varint(typeof value === 'number' ? value : 0);
      writer.delimited(3, Buffer.from(isText ? value : ''));
      break;
    }
    case '@Time':
    case '@MicroTime': {
      if (typeof value !== 'string') break;
      const milliseconds = Date.parse(value);
      const fraction = /\.(\d+)/.exec(value)?.[1] ?? '';
      writer.tag(1, VARINT);
      writer.varint(Math.floor(milliseconds / 1000));
      writer.tag(2, VARINT);
      writer.varint(scalar === '@Time' ? 0 : Number(fraction.padEnd(6, '0').slice(0, 6)) * 1000);
      break;
    }
    case '@Duration':
      writer.tag(1, VARINT);
      writer.varint(durationNanoseconds(String(value ?? '0s')));
      break;
    case '@ExtraValue':
      for (const item of (value as string[] | undefined) ?? []) writer.delimited(1, Buffer.from(item));
      break;
    case '@SchemaOrArray':
    case '@SchemaOrStringArray':
      if (!Array.isArray(value)) writer.delimited(1, encodeJsonSchema(types, value));
      else if (scalar === '@SchemaOrStringArray') {
        for (const item of value) writer.delimited(2, Buffer.from(String(item)));
      } else for (const item of value) writer.delimited(2, encodeJsonSchema(types, item));
      break;
    case '@SchemaOrBool':
      writer.tag(1, VARINT);
      writer.varint(value === false ? 0 : 1);
      if (typeof value !== 'boolean') writer.delimited(2, encodeJsonSchema(types, value));
      break;
    default:
      if (value !== undefined && value !== null) writer.delimited(1, Buffer.from(JSON.stringify(value)));
  }
  return writer.finish();
}

function encodeJsonSchema(types: TypeRegistry, value: unknown): Buffer {
  return encodeObject(types, types.type(JSON_SCHEMA), (value ?? {}) as Record<string, unknown>);
}

const UNITS: Readonly<Record<string, number>> = {
  h: 3.6e12,
  m: 6e10,
  s: 1e9,
  ms: 1e6,
  µs: 1e3,
  us: 1e3,
  ns: 1,
};

function durationNanoseconds(text: string): number {
  const sign = text.startsWith('-') ? -1 : 1;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/([0-9.]+)(ms|µs|us|ns|h|m|s)/g)) {
    total += Number(amount) * (UNITS[unit ?? ''] ?? 0);
  }
  return sign * Math.round(total);
}
