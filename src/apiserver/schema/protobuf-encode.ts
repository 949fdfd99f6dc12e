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
 * Encodes an object as the Go client does: the same fields in the same order, including zeros of non-pointer fields. An
 * object without an apiVersion is one of meta/v1's unversioned kinds (APIVersions); its envelope has no version either.
 * Throws Error if the kind is not described.
 */
export function encodeProtobuf(types: TypeRegistry, object: object): Buffer {
  const { apiVersion, kind } = object as { apiVersion?: string; kind?: string };
  const type = types.kind(apiVersion ?? 'v1', kind ?? '');
  if (!type) throw new Error(`no kind "${kind}" is registered for version "${apiVersion}"`);
  const writer = new WireWriter();
  writer.raw(MAGIC);
  writer.message(1, () => {
    writer.text(1, apiVersion ?? '');
    writer.text(2, kind ?? '');
  });
  writer.message(2, () => writeObject(types, writer, type, object as Record<string, unknown>));
  writer.delimited(3, new Uint8Array());
  writer.delimited(4, new Uint8Array());
  return writer.finish();
}

function writeObject(
  types: TypeRegistry,
  writer: WireWriter,
  type: ObjectType,
  object: Record<string, unknown>,
): void {
  for (const [number, field] of type.wire) {
    const value = field.inline ? inlineValue(types, field.type, object, field.pointer) : object[field.name];
    const missing = value === undefined || value === null;
    const { type: fieldType } = field;
    if (fieldType.kind === 'list') {
      for (const item of missing ? [] : (value as unknown[])) {
        writeValue(types, writer, number, fieldType.items, item);
      }
    } else if (fieldType.kind === 'map') {
      const map = missing ? {} : (value as Record<string, unknown>);
      for (const key of Object.keys(map).sort()) {
        writer.message(number, () => {
          writer.text(1, key);
          writeValue(types, writer, 2, fieldType.values, map[key]);
        });
      }
    } else if (!missing || (!field.pointer && !isSlice(fieldType))) {
      writeValue(types, writer, number, fieldType, value);
    }
  }
}

/** Byte slices are the only non-pointer type that can be absent. */
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

function writeValue(
  types: TypeRegistry,
  writer: WireWriter,
  number: number,
  type: FieldType,
  value: unknown,
): void {
  if (type.kind === 'object') {
    const nested = (value ?? {}) as Record<string, unknown>;
    writer.message(number, () => writeObject(types, writer, types.type(type.name), nested));
    return;
  }
  if (type.kind !== 'scalar') throw new Error('a list within a list cannot be encoded');
  switch (type.scalar) {
    case 'string':
      writer.text(number, (value as string | undefined) ?? '');
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
      writer.message(number, () => writeSpecial(types, writer, type.scalar, value));
  }
}

function writeSpecial(types: TypeRegistry, writer: WireWriter, scalar: Scalar, value: unknown): void {
  switch (scalar) {
    case '@Quantity':
      writer.text(1, String(value ?? '0'));
      break;
    case '@IntOrString': {
      const isText = typeof value === 'string';
      writer.tag(1, VARINT);
      writer.varint(isText ? 1 : 0);
      writer.tag(2, VARINT);
      writer.varint(typeof value === 'number' ? value : 0);
      writer.text(3, isText ? value : '');
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
      for (const item of (value as string[] | undefined) ?? []) writer.text(1, item);
      break;
    case '@SchemaOrArray':
    case '@SchemaOrStringArray':
      if (!Array.isArray(value)) writeJsonSchema(types, writer, 1, value);
      else if (scalar === '@SchemaOrStringArray') {
        for (const item of value) writer.text(2, String(item));
      } else for (const item of value) writeJsonSchema(types, writer, 2, item);
      break;
    case '@SchemaOrBool':
      writer.tag(1, VARINT);
      writer.varint(value === false ? 0 : 1);
      if (typeof value !== 'boolean') writeJsonSchema(types, writer, 2, value);
      break;
    default:
      if (value !== undefined && value !== null) writer.text(1, JSON.stringify(value));
  }
}

function writeJsonSchema(types: TypeRegistry, writer: WireWriter, number: number, value: unknown): void {
  const schema = (value ?? {}) as Record<string, unknown>;
  writer.message(number, () => writeObject(types, writer, types.type(JSON_SCHEMA), schema));
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
