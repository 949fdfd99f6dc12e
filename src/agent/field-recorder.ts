import type { FieldReader } from './field-reader.ts';

/** One field of a configuration as its reader declares it. */
export interface FieldDescription {
  /** "proxy.mode" */
  readonly path: string;
  /** "string", "boolean", "integer from 0 to 31", "one of a, b", "list of strings", "duration", "object" … */
  readonly type: string;
  /** The default in the notation of the document; null: none, and the field is unset. */
  readonly fallback: string | null;
}

/** Calls a configuration reader without a document: every field gets its default and is recorded, nested fields too. */
export function recordFields(read: (reader: FieldReader) => unknown): FieldDescription[] {
  const fields: FieldDescription[] = [];
  read(recorder('', fields));
  return fields;
}

function recorder(prefix: string, fields: FieldDescription[]): FieldReader {
  const add = (field: string, type: string, fallback: string | null) =>
    void fields.push({ path: `${prefix}${field}`, type, fallback });
  const nested = <T>(field: string, type: string, read: (reader: FieldReader) => T): T => {
    add(field, type, null);
    return read(recorder(`${prefix}${field}.`, fields));
  };
  return {
    text(field, fallback) {
      add(field, 'string', JSON.stringify(fallback));
      return fallback;
    },
    optionalText(field) {
      add(field, 'string', null);
      return null;
    },
    flag(field, fallback) {
      add(field, 'boolean', `${fallback}`);
      return fallback;
    },
    number(field, fallback, min, max) {
      add(field, `integer from ${min} to ${max}`, `${fallback}`);
      return fallback;
    },
    optionalNumber(field, min, max) {
      add(field, `integer from ${min} to ${max}`, null);
      return null;
    },
    choice(field, choices, fallback) {
      add(field, `one of ${choices.join(', ')}`, fallback);
      return fallback;
    },
    texts(field, fallback) {
      add(field, 'list of strings', JSON.stringify(fallback));
      return [...fallback];
    },
    listsByName(field) {
      add(field, 'object of lists of strings', '{}');
      return {};
    },
    textsByName(field) {
      add(field, 'object of strings', '{}');
      return {};
    },
    objectsByName(field, listField, read) {
      add(field, `object of objects by name; a list means its \`${listField}\``, '{}');
      read(recorder(`${prefix}${field}.NAME.`, fields), 'NAME');
      return {};
    },
    objects(field, read) {
      add(field, 'list of objects', '[]');
      read(recorder(`${prefix}${field}[].`, fields));
      return [];
    },
    plainObjects(field) {
      add(field, 'list of objects', '[]');
      return [];
    },
    duration(field, fallbackMs) {
      add(field, 'duration, such as 1m30s', `${fallbackMs / 1000}s`);
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
