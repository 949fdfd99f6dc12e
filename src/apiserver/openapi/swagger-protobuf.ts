import { FIXED64, VARINT, WireWriter } from '../schema/protobuf-wire.ts';

type Json = Record<string, unknown>;
type Encode = (writer: WireWriter, number: number, value: unknown) => void;
type Fields = Readonly<Record<string, readonly [number: number, encode: Encode]>>;

/**
 * Encodes an OpenAPI 2 document as openapi.v2.Document, which client-go reads. Field numbers: gnostic's
 * openapiv2/OpenAPIv2.proto. Values of any shape are written as JSON text, which is also YAML.
 */
export function encodeSwagger(document: object): Buffer {
  return message(document as Json, DOCUMENT);
}

const text: Encode = (writer, number, value) => writer.delimited(number, Buffer.from(String(value)));
const bool: Encode = (writer, number, value) => {
  if (!value) return;
  writer.tag(number, VARINT);
  writer.varint(1);
};
const integer: Encode = (writer, number, value) => {
  writer.tag(number, VARINT);
  writer.varint(Number(value));
};
const double: Encode = (writer, number, value) => {
  writer.tag(number, FIXED64);
  writer.double(Number(value));
};
const any: Encode = (writer, number, value) => writer.delimited(number, anyMessage(value));
const each =
  (encode: Encode): Encode =>
  (writer, number, value) => {
    for (const item of Array.isArray(value) ? value : [value]) encode(writer, number, item);
  };
const nested =
  (fields: () => Fields, extension?: number): Encode =>
  (writer, number, value) =>
    writer.delimited(number, message(value as Json, fields(), extension));

/** Encodes pairs of name (1) and value (2), all in field `pairs` of a separate message. */
const map =
  (encode: Encode, pairs = 1): Encode =>
  (writer, number, value) => {
    const entries = new WireWriter();
    for (const [name, item] of Object.entries(value as Json)) {
      const pair = new WireWriter();
      pair.delimited(1, Buffer.from(name));
      encode(pair, 2, item);
      entries.delimited(pairs, pair.finish());
    }
    writer.delimited(number, entries.finish());
  };
/** Encodes one alternative of a message: the value as its field `choice`. */
const wrapped =
  (choice: number, encode: Encode): Encode =>
  (writer, number, value) => {
    const inner = new WireWriter();
    encode(inner, choice, value);
    writer.delimited(number, inner.finish());
  };

function anyMessage(value: unknown): Buffer {
  const writer = new WireWriter();
  writer.delimited(2, Buffer.from(JSON.stringify(value)));
  return writer.finish();
}

/** Encodes fields in the order of their numbers; `extension`: the field for keys that begin with "x-". */
function message(object: Json, fields: Fields, extension?: number): Buffer {
  const writer = new WireWriter();
  for (const [name, [number, encode]] of Object.entries(fields)) {
    const value = object[name];
    if (value !== undefined) encode(writer, number, value);
  }
  for (const [name, value] of Object.entries(object)) {
    if (extension === undefined || !name.startsWith('x-')) continue;
    const pair = new WireWriter();
    pair.delimited(1, Buffer.from(name));
    pair.delimited(2, anyMessage(value));
    writer.delimited(extension, pair.finish());
  }
  return writer.finish();
}

const schema = nested(() => SCHEMA, 31);
const SCHEMA: Fields = {
  $ref: [1, text],
  format: [2, text],
  title: [3, text],
  description: [4, text],
  default: [5, any],
  multipleOf: [6, double],
  maximum: [7, double],
  exclusiveMaximum: [8, bool],
  minimum: [9, double],
  exclusiveMinimum: [10, bool],
  maxLength: [11, integer],
  minLength: [12, integer],
  pattern: [13, text],
  maxItems: [14, integer],
  minItems: [15, integer],
  uniqueItems: [16, bool],
  maxProperties: [17, integer],
  minProperties: [18, integer],
  required: [19, each(text)],
  enum: [20, each(any)],
  additionalProperties: [
    21,
    (writer, number, value) =>
      typeof value === 'boolean'
        ? wrapped(2, bool)(writer, number, value)
        : wrapped(1, schema)(writer, number, value),
  ],
  type: [22, wrapped(1, each(text))],
  items: [23, wrapped(1, schema)],
  properties: [25, map(schema)],
  readOnly: [27, bool],
  example: [30, any],
};

/** QueryParameterSubSchema; for a path parameter, numbers from the type on are one less. */
const QUERY_PARAMETER: Fields = {
  required: [1, bool],
  in: [2, text],
  description: [3, text],
  name: [4, text],
  type: [6, text],
  format: [7, text],
  default: [10, any],
  uniqueItems: [20, bool],
};
const PATH_PARAMETER: Fields = {
  required: [1, bool],
  in: [2, text],
  description: [3, text],
  name: [4, text],
  type: [5, text],
  format: [6, text],
  default: [9, any],
  uniqueItems: [19, bool],
};
const BODY_PARAMETER: Fields = {
  description: [1, text],
  name: [2, text],
  in: [3, text],
  required: [4, bool],
  schema: [5, schema],
};

/** ParametersItem → Parameter → body, or non-body → query or path. */
const parameter: Encode = (writer, number, value) => {
  const where = (value as Json)['in'];
  const choice =
    where === 'body'
      ? wrapped(
          1,
          nested(() => BODY_PARAMETER, 6),
        )
      : wrapped(
          2,
          where === 'path'
            ? wrapped(
                4,
                nested(() => PATH_PARAMETER, 22),
              )
            : wrapped(
                3,
                nested(() => QUERY_PARAMETER, 23),
              ),
        );
  wrapped(1, choice)(writer, number, value);
};

const RESPONSE: Fields = { description: [1, text], schema: [2, wrapped(1, schema)] };
const OPERATION: Fields = {
  description: [3, text],
  operationId: [5, text],
  produces: [6, each(text)],
  consumes: [7, each(text)],
  parameters: [8, each(parameter)],
  responses: [
    9,
    map(
      wrapped(
        1,
        nested(() => RESPONSE, 5),
      ),
    ),
  ],
};
const operation = nested(() => OPERATION, 13);
const PATH_ITEM: Fields = {
  get: [2, operation],
  put: [3, operation],
  post: [4, operation],
  delete: [5, operation],
  options: [6, operation],
  head: [7, operation],
  patch: [8, operation],
  parameters: [9, each(parameter)],
};
const INFO: Fields = { title: [1, text], version: [2, text] };
const DOCUMENT: Fields = {
  swagger: [1, text],
  info: [2, nested(() => INFO)],
  paths: [
    8,
    map(
      nested(() => PATH_ITEM, 10),
      2,
    ),
  ],
  definitions: [9, map(schema)],
};
