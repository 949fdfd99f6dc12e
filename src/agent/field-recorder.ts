import type { JsonSchema } from '../lib/json-schema.ts';
import type { FieldReader } from './field-reader.ts';

/** One field of a configuration as its reader declares it. */
export interface FieldDescription {
  /** "proxy.mode" */
  readonly path: string;
  /** "string", "boolean", "integer from 0 to 31", "one of a, b", "list of strings", "duration", "object" … */
  readonly type: string;
  /** The default in the notation of the document; null: none, and the field is unset. */
  readonly fallback: string | null;
  /** The values that the reader takes; of an object without its fields, which have descriptions of their own. */
  readonly schema: JsonSchema;
}

const TEXTS: JsonSchema = { type: 'array', items: { type: 'string' } };
/** Fields of an object are added by their paths. */
const FIELDS: JsonSchema = { type: 'object' };

/** Calls a configuration reader without a document: every field gets its default and is recorded, nested fields too. */
export function recordFields(read: (reader: FieldReader) => unknown): FieldDescription[] {
  const fields: FieldDescription[] = [];
  read(recorder('', fields));
  return fields;
}

function recorder(prefix: string, fields: FieldDescription[]): FieldReader {
  const add = (field: string, type: string, fallback: string | null, schema: JsonSchema) =>
    void fields.push({ path: `${prefix}${field}`, type, fallback, schema });
  const nested = <T>(field: string, type: string, read: (reader: FieldReader) => T): T => {
    add(field, type, null, FIELDS);
    return read(recorder(`${prefix}${field}.`, fields));
  };
  const integer = (min: number, max: number): JsonSchema => ({ type: 'integer', minimum: min, maximum: max });
  return {
    text(field, fallback) {
      add(field, 'string', JSON.stringify(fallback), { type: 'string', default: fallback });
      return fallback;
    },
    optionalText(field) {
      add(field, 'string', null, { type: 'string' });
      return null;
    },
    flag(field, fallback) {
      add(field, 'boolean', `${fallback}`, { type: 'boolean', default: fallback });
      return fallback;
    },
    number(field, fallback, min, max) {
      const schema = { ...integer(min, max), default: fallback };
      add(field, `integer from ${min} to ${max}`, `${fallback}`, schema);
      return fallback;
    },
    optionalNumber(field, min, max) {
      add(field, `integer from ${min} to ${max}`, null, integer(min, max));
      return null;
    },
    choice(field, choices, fallback) {
      add(field, `one of ${choices.join(', ')}`, fallback, { enum: choices, default: fallback });
      return fallback;
    },
    texts(field, fallback) {
      add(field, 'list of strings', JSON.stringify(fallback), { ...TEXTS, default: fallback });
      return [...fallback];
    },
    listsByName(field) {
      add(field, 'object of lists of strings', '{}', { type: 'object', additionalProperties: TEXTS });
      return {};
    },
    textsByName(field) {
      const schema: JsonSchema = { type: 'object', additionalProperties: { type: 'string' } };
      add(field, 'object of strings', '{}', schema);
      return {};
    },
    objectsByName(field, listField, read) {
      add(field, `object of objects by name; a list means its \`${listField}\``, '{}', {
        type: 'object',
        additionalProperties: { anyOf: [TEXTS, FIELDS] },
      });
      read(recorder(`${prefix}${field}.NAME.`, fields), 'NAME');
      return {};
    },
    objects(field, read) {
      add(field, 'list of objects', '[]', { type: 'array', items: FIELDS });
      read(recorder(`${prefix}${field}[].`, fields));
      return [];
    },
    plainObjects(field) {
      add(field, 'list of objects', '[]', { type: 'array', items: { type: 'object' } });
      return [];
    },
    duration(field, fallbackMs) {
      const fallback = `${fallbackMs / 1000}s`;
      add(field, 'duration, such as 1m30s', fallback, {
        anyOf: [{ type: 'string', pattern: '^(0|([0-9.]+(ns|us|µs|μs|ms|s|m|h))+)$' }, { const: 0 }],
        default: fallback,
      });
      return fallbackMs;
    },
    object: (field, read) => nested(field, 'object', read),
    optionalObject: (field, read) => nested(field, 'object; absent: disabled', read),
    ignore() {},
    unknownFields: () => [],
    ignoreUnknown() {},
    problem() {},
    finish() {},
  };
}
