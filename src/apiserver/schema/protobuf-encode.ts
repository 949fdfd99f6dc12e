import { MAGIC } from './protobuf-decode.ts';
import { DELIMITED, FIXED64, VARINT, WireWriter } from './protobuf-wire.ts';
import {
  type Field,
  type FieldType,
  JSON_SCHEMA,
  type ObjectType,
  type Scalar,
  type TypeRegistry,
} from './type-schema.ts';

/** Writes a field's value; undefined and null are its zero. */
type WriteField = (writer: WireWriter, value: unknown) => void;

interface FieldStep {
  /** The JSON name; null: an embedded struct, whose fields are the object's own. */
  readonly name: string | null;
  /** An embedded pointer: absent unless the object has one of these fields. */
  readonly presence: ReadonlyMap<string, Field> | null;
  /** Whether a missing value is not on the wire. */
  readonly isOptional: boolean;
  readonly write: WriteField;
}

type EncodeObject = (writer: WireWriter, object: Record<string, unknown>) => void;

/** Encodes objects in Kubernetes' Protobuf envelope. */
export interface ProtobufEncoder {
  encodeProtobuf(object: object): Buffer;
  /** Encodes a list in pieces. The bytes of an item are kept as long as the item: it must not change. */
  encodeProtobufList(list: object, items: readonly object[]): Iterable<Buffer>;
}

/** The field number of a list's items, in all kinds. */
const ITEMS = 2;

/**
 * Makes functions that encode objects as the Go client does: the same fields in the same order, including zeros of
 * non-pointer fields. An object without an apiVersion is one of meta/v1's unversioned kinds (APIVersions); its envelope
 * has no version either. Each type is compiled to a list of steps on first use. Throws Error if a kind is not described.
 */
export function createProtobufEncoder(types: TypeRegistry): ProtobufEncoder {
  const compiled = new Map<string, EncodeObject>();
  const typeNamed = (name: string) => encoderOf(types.type(name));

  function encoderOf(type: ObjectType): EncodeObject {
    const known = compiled.get(type.name);
    if (known) return known;
    let steps: readonly FieldStep[] | null = null;
    const encode: EncodeObject = (writer, object) => {
      // On first use: types may contain themselves.
      steps ??= [...type.wire].map(([number, field]) => stepOf(number, field));
      for (const { name, presence, isOptional, write } of steps) {
        if (name === null) {
          if (presence === null || Object.keys(object).some((key) => presence.has(key)))
            write(writer, object);
          continue;
        }
        const value = object[name];
        if (isOptional && (value === undefined || value === null)) continue;
        write(writer, value);
      }
    };
    compiled.set(type.name, encode);
    return encode;
  }

  function stepOf(number: number, { name, inline, pointer, type }: Field): FieldStep {
    const write = writerOf(number, type);
    if (inline && type.kind === 'object')
      return {
        name: null,
        presence: pointer ? types.type(type.name).fields : null,
        isOptional: false,
        write,
      };
    const isOptional = pointer || type.kind === 'list' || type.kind === 'map' || isSlice(type);
    return { name: inline ? null : name, presence: null, isOptional, write };
  }

  function writerOf(number: number, type: FieldType): WriteField {
    switch (type.kind) {
      case 'list': {
        const item = writerOf(number, type.items);
        return (writer, value) => {
          for (const one of value as readonly unknown[]) item(writer, one);
        };
      }
      case 'map': {
        const entry = writerOf(2, type.values);
        return (writer, value) => {
          const map = value as Readonly<Record<string, unknown>>;
          for (const key of Object.keys(map).sort()) {
            const start = writer.begin(number);
            writer.text(1, key);
            entry(writer, map[key]);
            writer.end(start);
          }
        };
      }
      case 'object': {
        const encode = typeNamed(type.name);
        return (writer, value) => {
          const start = writer.begin(number);
          encode(writer, (value ?? {}) as Record<string, unknown>);
          writer.end(start);
        };
      }
      case 'scalar':
        return scalarWriter(number, type.scalar, typeNamed);
    }
  }

  function typeOf(object: object): { type: ObjectType; apiVersion: string; kind: string } {
    const { apiVersion = '', kind = '' } = object as { apiVersion?: string; kind?: string };
    const type = types.kind(apiVersion === '' ? 'v1' : apiVersion, kind);
    if (!type) throw new Error(`no kind "${kind}" is registered for version "${apiVersion}"`);
    return { type, apiVersion, kind };
  }

  /** The items of lists with their tags and lengths. */
  const encodedItems = new WeakMap<object, Buffer>();
  function encodedItem(write: WriteField, item: object): Buffer {
    const known = encodedItems.get(item);
    if (known) return known;
    const writer = new WireWriter();
    write(writer, item);
    const bytes = Buffer.from(writer.finish());
    encodedItems.set(item, bytes);
    return bytes;
  }

  return {
    encodeProtobuf(object) {
      const { type, apiVersion, kind } = typeOf(object);
      const writer = new WireWriter();
      writeHead(writer, apiVersion, kind);
      writer.message(2, () => encoderOf(type)(writer, object as Record<string, unknown>));
      writeTail(writer);
      return writer.finish();
    },
    encodeProtobufList(list, items) {
      const { type, apiVersion, kind } = typeOf(list);
      const field = type.wire.get(ITEMS);
      if (field?.name !== 'items' || field.type.kind !== 'list') throw new Error(`${kind} is not a list`);
      const writeItem = writerOf(ITEMS, field.type.items);
      const pieces = items.map((item) => encodedItem(writeItem, item));
      const rest = new WireWriter();
      encoderOf(type)(rest, { ...list, items: [] });
      const message = rest.finish();
      const head = new WireWriter();
      writeHead(head, apiVersion, kind);
      head.tag(2, DELIMITED);
      head.varint(pieces.reduce((sum, { length }) => sum + length, message.length));
      head.raw(message);
      const tail = new WireWriter();
      writeTail(tail);
      return [head.finish(), ...pieces, tail.finish()];
    },
  };
}

/** Begins the envelope (runtime.Unknown); its second field, which follows, is the object. */
function writeHead(writer: WireWriter, apiVersion: string, kind: string): void {
  writer.raw(MAGIC);
  writer.message(1, () => {
    writer.text(1, apiVersion);
    writer.text(2, kind);
  });
}

function writeTail(writer: WireWriter): void {
  writer.delimited(3, new Uint8Array());
  writer.delimited(4, new Uint8Array());
}

/** Byte slices are the only non-pointer type that can be absent. */
function isSlice(type: FieldType): boolean {
  return type.kind === 'scalar' && (type.scalar === 'bytes' || type.scalar === '@ExtraValue');
}

function scalarWriter(number: number, scalar: Scalar, typeNamed: (name: string) => EncodeObject): WriteField {
  switch (scalar) {
    case 'string':
      return (writer, value) => writer.text(number, (value as string | null | undefined) ?? '');
    case 'bytes':
      return (writer, value) =>
        writer.delimited(number, Buffer.from((value as string | null | undefined) ?? '', 'base64'));
    case 'bool':
      return (writer, value) => {
        writer.tag(number, VARINT);
        writer.varint(value ? 1 : 0);
      };
    case 'int32':
    case 'int64':
      return (writer, value) => {
        writer.tag(number, VARINT);
        writer.varint((value as number | null | undefined) ?? 0);
      };
    case 'float64':
      return (writer, value) => {
        writer.tag(number, FIXED64);
        writer.double((value as number | null | undefined) ?? 0);
      };
    default:
      return (writer, value) => {
        const start = writer.begin(number);
        writeSpecial(typeNamed, writer, scalar, value);
        writer.end(start);
      };
  }
}

function writeSpecial(
  typeNamed: (name: string) => EncodeObject,
  writer: WireWriter,
  scalar: Scalar,
  value: unknown,
): void {
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
      writer.tag(1, VARINT);
      writer.varint(Math.floor(milliseconds / 1000));
      writer.tag(2, VARINT);
      writer.varint(scalar === '@Time' ? 0 : microseconds(value) * 1000);
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
      if (!Array.isArray(value)) writeJsonSchema(typeNamed, writer, 1, value);
      else if (scalar === '@SchemaOrStringArray') {
        for (const item of value) writer.text(2, String(item));
      } else for (const item of value) writeJsonSchema(typeNamed, writer, 2, item);
      break;
    case '@SchemaOrBool':
      writer.tag(1, VARINT);
      writer.varint(value === false ? 0 : 1);
      if (typeof value !== 'boolean') writeJsonSchema(typeNamed, writer, 2, value);
      break;
    default:
      if (value !== undefined && value !== null) writer.text(1, JSON.stringify(value));
  }
}

function writeJsonSchema(
  typeNamed: (name: string) => EncodeObject,
  writer: WireWriter,
  number: number,
  value: unknown,
): void {
  const start = writer.begin(number);
  typeNamed(JSON_SCHEMA)(writer, (value ?? {}) as Record<string, unknown>);
  writer.end(start);
}

const microseconds = (time: string): number =>
  Number((/\.(\d+)/.exec(time)?.[1] ?? '').padEnd(6, '0').slice(0, 6));

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
  for (const [, amount, unit] of text.replace(/^-/, '').matchAll(/([0-9.]+)(ms|µs|us|ns|h|m|s)/gy)) {
    total += Number(amount) * (UNITS[unit ?? ''] ?? 0);
  }
  return sign * Math.round(total);
}
