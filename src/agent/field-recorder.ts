import type { FieldReader } from './field-reader.ts';

/** One field of a configuration as its reader asks for it. */
export interface FieldDescription {
  /** "proxy.mode" */
  readonly path: string;
  /** "text", "true or false", "whole number from 0 to 31", "one of a, b", "list of text", "duration", "object" … */
  readonly type: string;
  /** The value where the field is absent, as it would be written; null: there is none, and the field is off. */
  readonly fallback: string | null;
}

/** A reader without a document: it answers with every default and records what it was asked for, nested parts too. */
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
      add(field, 'text', JSON.stringify(fallback));
      return fallback;
    },
    optionalText(field) {
      add(field, 'text', null);
      return null;
    },
    flag(field, fallback) {
      add(field, 'true or false', `${fallback}`);
      return fallback;
    },
    number(field, fallback, min, max) {
      add(field, `whole number from ${min} to ${max}`, `${fallback}`);
      return fallback;
    },
    optionalNumber(field, min, max) {
      add(field, `whole number from ${min} to ${max}`, null);
      return null;
    },
    choice(field, choices, fallback) {
      add(field, `one of ${choices.join(', ')}`, fallback);
      return fallback;
    },
    texts(field, fallback) {
      add(field, 'list of text', JSON.stringify(fallback));
      return [...fallback];
    },
    listsByName(field) {
      add(field, 'object of lists of text', '{}');
      return {};
    },
    duration(field, fallbackMs) {
      add(field, 'duration, such as 1m30s', `${fallbackMs / 1000}s`);
      return fallbackMs;
    },
    object: (field, read) => nested(field, 'object', read),
    optionalObject: (field, read) => nested(field, 'object; absent: this part is off', read),
    ignore() {},
    unknownFields: () => [],
    ignoreUnknown() {},
    problem() {},
    finish() {},
  };
}
