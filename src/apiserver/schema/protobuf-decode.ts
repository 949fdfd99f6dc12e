import { DELIMITED, FIXED64, VARINT, WireReader } from './protobuf-wire.ts';
import {
  type Field,
  type FieldType,
  JSON_SCHEMA,
  type ObjectType,
  type Scalar,
  type TypeRegistry,
} from './type-schema.ts';

/** The start of every Protobuf body of the API: "k8s" and a zero byte. */
export const MAGIC = Buffer.from([0x6b, 0x38, 0x73, 0x00]);

const MAX_DEPTH = 64;

/**
 * Decodes a Protobuf body (k8s.io/apimachinery/pkg/runtime/serializer/protobuf: the magic, then a runtime.Unknown that
 * names kind and version and contains the object) into the JSON that the Go client would have sent instead. Throws
 * Error that describes malformed input.
 */
export function decodeProtobuf(types: TypeRegistry, bytes: Uint8Array): Record<string, unknown> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (!buffer.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw new Error('the body does not begin with the prefix of Kubernetes Protobuf');
  }
  const envelope = new WireReader(buffer, MAGIC.length);
  let apiVersion = '';
  let kind = '';
  let raw: WireReader = new WireReader(buffer, buffer.length);
  let contentType = '';
  for (const { number, reader } of delimitedFields(envelope)) {
    if (number === 1) {
      for (const inner of delimitedFields(reader.nested())) {
        if (inner.number === 1) apiVersion = inner.reader.text();
        else if (inner.number === 2) kind = inner.reader.text();
        else inner.reader.nested();
      }
    } else if (number === 2) raw = reader.nested();
    else if (number === 4) contentType = reader.text();
    else reader.nested();
  }
  if (contentType === 'application/json') {
    return JSON.parse(raw.bytes.toString('utf8', raw.at, raw.end)) as Record<string, unknown>;
  }
  const type = types.kind(apiVersion, kind);
  if (!type) throw new Error(`no kind "${kind}" is registered for version "${apiVersion}"`);
  const { apiVersion: _version, kind: _kind, ...object } = decodeObject(types, type, raw, 0);
  return { kind, apiVersion, ...object };
}

/** Yields the fields of an envelope, all length-delimited; others are skipped. */
function* delimitedFields(reader: WireReader): Generator<{ number: number; reader: WireReader }> {
  while (!reader.done) {
    const tag = reader.varint();
    if ((tag & 7) !== DELIMITED) reader.skip(tag & 7);
    else yield { number: Math.floor(tag / 8), reader };
  }
}

function decodeObject(
  types: TypeRegistry,
  type: ObjectType,
  reader: WireReader,
  depth: number,
): Record<string, unknown> {
  if (depth > MAX_DEPTH) throw new Error(`${type.short} is nested too deep`);
  const values = new Map<Field, unknown>();
  while (!reader.done) {
    const tag = reader.varint();
    const wireType = tag & 7;
    const field = type.wire.get(Math.floor(tag / 8));
    if (!field) {
      reader.skip(wireType);
      continue;
    }
    decodeField(types, field, reader, wireType, values, depth, type);
  }
  return toJson(types, type, values);
}

function decodeField(
  types: TypeRegistry,
  field: Field,
  reader: WireReader,
  wireType: number,
  values: Map<Field, unknown>,
  depth: number,
  owner: ObjectType,
): void {
  const { type } = field;
  if (type.kind === 'list') {
    const list = (values.get(field) as unknown[] | undefined) ?? [];
    values.set(field, list);
    if (wireType === DELIMITED && expectedWireType(type.items) === VARINT) {
      const packed = reader.nested();
      while (!packed.done) list.push(decodeValue(types, type.items, packed, VARINT, depth, owner, field));
    } else {
      list.push(decodeValue(types, type.items, reader, wireType, depth, owner, field));
    }
    return;
  }
  if (type.kind === 'map') {
    if (wireType !== DELIMITED) throw wrongWireType(owner, field, wireType);
    const map = (values.get(field) as Record<string, unknown> | undefined) ?? {};
    values.set(field, map);
    const entry = reader.nested();
    let key = '';
    let value: unknown = zeroOf(types, type.values);
    while (!entry.done) {
      const tag = entry.varint();
      if (tag >> 3 === 1 && (tag & 7) === DELIMITED) key = entry.text();
      else if (tag >> 3 === 2) value = decodeValue(types, type.values, entry, tag & 7, depth, owner, field);
      else entry.skip(tag & 7);
    }
    Object.defineProperty(map, key, { value, enumerable: true, writable: true, configurable: true });
    return;
  }
  values.set(field, decodeValue(types, type, reader, wireType, depth, owner, field));
}

function decodeValue(
  types: TypeRegistry,
  type: FieldType,
  reader: WireReader,
  wireType: number,
  depth: number,
  owner: ObjectType,
  field: Field,
): unknown {
  if (wireType !== expectedWireType(type)) throw wrongWireType(owner, field, wireType);
  if (type.kind === 'object') return decodeObject(types, types.type(type.name), reader.nested(), depth + 1);
  if (type.kind !== 'scalar') throw new Error(`${owner.short}.${field.name} is a list within a list`);
  switch (type.scalar) {
    case 'string':
      return reader.text();
    case 'bytes':
      return reader.slice().toString('base64');
    case 'bool':
      return reader.varint() !== 0;
    case 'int32':
      return reader.varint() | 0;
    case 'int64':
      return reader.varint();
    case 'float64':
      return reader.double();
    default:
      return decodeSpecial(types, type.scalar, reader.nested());
  }
}

function expectedWireType(type: FieldType): number {
  if (type.kind !== 'scalar') return DELIMITED;
  switch (type.scalar) {
    case 'bool':
    case 'int32':
    case 'int64':
      return VARINT;
    case 'float64':
      return FIXED64;
    default:
      return DELIMITED;
  }
}

function wrongWireType(owner: ObjectType, field: Field, wireType: number): Error {
  return new Error(`proto: wrong wireType = ${wireType} for field ${owner.short}.${field.name}`);
}

/** Special types are messages on the wire; their fields are numbered from one. */
function decodeSpecial(types: TypeRegistry, scalar: Scalar, reader: WireReader): unknown {
  const numbers = new Map<number, number>();
  const slices: [number, Buffer][] = [];
  while (!reader.done) {
    const tag = reader.varint();
    const number = tag >> 3;
    if ((tag & 7) === VARINT) numbers.set(number, reader.varint());
    else if ((tag & 7) === DELIMITED) slices.push([number, reader.slice()]);
    else reader.skip(tag & 7);
  }
  const textOf = (number: number) => slices.findLast(([one]) => one === number)?.[1].toString('utf8');
  switch (scalar) {
    case '@Quantity':
      return textOf(1) || '0';
    case '@IntOrString':
      return numbers.get(1) === 1 ? (textOf(3) ?? '') : (numbers.get(2) ?? 0) | 0;
    case '@Time':
    case '@MicroTime':
      return numbers.size === 0 ? null : timeText(scalar, numbers.get(1) ?? 0, numbers.get(2) ?? 0);
    case '@Duration':
      return durationText(numbers.get(1) ?? 0);
    case '@ExtraValue':
      return slices.filter(([number]) => number === 1).map(([, bytes]) => bytes.toString('utf8'));
    case '@SchemaOrArray':
    case '@SchemaOrStringArray': {
      const schema = slices.findLast(([number]) => number === 1)?.[1];
      if (schema) return decodeJsonSchema(types, schema);
      const items = slices.filter(([number]) => number === 2).map(([, bytes]) => bytes);
      return scalar === '@SchemaOrStringArray'
        ? items.map((bytes) => bytes.toString('utf8'))
        : items.map((bytes) => decodeJsonSchema(types, bytes));
    }
    case '@SchemaOrBool': {
      const schema = slices.findLast(([number]) => number === 2)?.[1];
      return schema ? decodeJsonSchema(types, schema) : numbers.get(1) === 1;
    }
    default: {
      const raw = slices.findLast(([number]) => number === 1)?.[1];
      if (!raw || raw.length === 0) return null;
      return raw.subarray(0, MAGIC.length).equals(MAGIC)
        ? decodeProtobuf(types, raw)
        : JSON.parse(raw.toString('utf8'));
    }
  }
}

function decodeJsonSchema(types: TypeRegistry, bytes: Buffer): unknown {
  return decodeObject(types, types.type(JSON_SCHEMA), new WireReader(bytes, 0), 0);
}

/** Formats RFC 3339 to the second or, for a MicroTime, to the microsecond. */
function timeText(scalar: '@Time' | '@MicroTime', seconds: number, nanos: number): string | null {
  // The zero of Go's time, year 1.
  if (seconds === -62135596800) return null;
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) throw new Error(`${seconds} seconds is not a time`);
  const text = date.toISOString().slice(0, 19);
  return scalar === '@Time' ? `${text}Z` : `${text}.${String(Math.trunc(nanos / 1000)).padStart(6, '0')}Z`;
}

/** Formats a duration like Go: "1h0m0s", "1.5s", "250ms". */
function durationText(nanoseconds: number): string {
  if (nanoseconds === 0) return '0s';
  const sign = nanoseconds < 0 ? '-' : '';
  const amount = Math.abs(nanoseconds);
  if (amount < 1000) return `${sign}${amount}ns`;
  if (amount < 1e6) return `${sign}${amount / 1e3}µs`;
  if (amount < 1e9) return `${sign}${amount / 1e6}ms`;
  const hours = Math.floor(amount / 3.6e12);
  const minutes = Math.floor((amount % 3.6e12) / 6e10);
  const seconds = (amount % 6e10) / 1e9;
  return `${sign}${hours > 0 ? `${hours}h` : ''}${hours > 0 || minutes > 0 ? `${minutes}m` : ''}${seconds}s`;
}

/** Serializes decoded values like Go's encoder: omits empty values unless the field is always serialized. */
function toJson(types: TypeRegistry, type: ObjectType, values: ReadonlyMap<Field, unknown>) {
  const object: Record<string, unknown> = {};
  for (const field of type.declared) {
    if (field.number === 0) continue;
    const value = values.get(field);
    if (field.omitZero && isZero(value)) continue;
    if (field.inline) {
      if (value !== undefined) Object.assign(object, value);
      else if (!field.pointer) Object.assign(object, zeroOf(types, field.type));
    } else if (value === undefined) {
      const zero = field.pointer ? null : zeroOf(types, field.type);
      if (field.always || (zero !== null && !isEmpty(field.type, zero)) || isStruct(field)) {
        object[field.name] = zero;
      }
    } else if (field.always || field.pointer || !isEmpty(field.type, value)) {
      object[field.name] = value;
    }
  }
  return object;
}

function isZero(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** Go serializes non-pointer structs even if they are empty. */
function isStruct(field: Field): boolean {
  if (field.pointer) return false;
  const { type } = field;
  return type.kind === 'object' || (type.kind === 'scalar' && STRUCTS.has(type.scalar));
}

const STRUCTS: ReadonlySet<Scalar> = new Set([
  '@Quantity',
  '@Time',
  '@MicroTime',
  '@Duration',
  '@IntOrString',
  '@RawExtension',
]);

function isEmpty(type: FieldType, value: unknown): boolean {
  switch (type.kind) {
    case 'object':
      return false;
    case 'list':
      return value === null || (value as unknown[]).length === 0;
    case 'map':
      return value === null || Object.keys(value as object).length === 0;
    case 'scalar':
      if (STRUCTS.has(type.scalar)) return false;
      if (type.scalar === '@ExtraValue') return (value as unknown[]).length === 0;
      return value === '' || value === 0 || value === false || value === null;
  }
}

function zeroOf(types: TypeRegistry, type: FieldType): unknown {
  switch (type.kind) {
    case 'list':
    case 'map':
      return null;
    case 'object':
      return toJson(types, types.type(type.name), new Map());
    case 'scalar':
      switch (type.scalar) {
        case 'string':
          return '';
        case 'bytes':
          return '';
        case 'bool':
          return false;
        case '@Quantity':
          return '0';
        case '@Duration':
          return '0s';
        case '@ExtraValue':
          return [];
        case 'int32':
        case 'int64':
        case 'float64':
        case '@IntOrString':
          return 0;
        default:
          return null;
      }
  }
}
