import { FairleadError } from '../lib/errors.ts';
import { parseGoDuration } from '../lib/go-duration.ts';

/**
 * Reads the fields of a configuration object and collects all problems, so that the user sees them at once. Every
 * reading method returns a usable value (the default if the field is wrong); `finish` throws if there were problems.
 */
export interface FieldReader {
  text(field: string, fallback: string): string;
  optionalText(field: string): string | null;
  flag(field: string, fallback: boolean): boolean;
  number(field: string, fallback: number, min: number, max: number): number;
  optionalNumber(field: string, min: number, max: number): number | null;
  choice<T extends string>(field: string, choices: readonly T[], fallback: T): T;
  /** Reads a list of strings. `check` returns the problem of an item, or null. */
  texts(field: string, fallback: readonly string[], check?: (item: string) => string | null): string[];
  /**
   * Reads an object of lists, such as {"corp.example": ["10.0.0.53"]}; `check` returns the problem of an
   * item, or null.
   */
  listsByName(
    field: string,
    checkName: (name: string) => string | null,
    check: (item: string) => string | null,
  ): Record<string, string[]>;
  /** Reads an object of strings, such as labels. */
  textsByName(field: string): Record<string, string>;
  /**
   * Reads an object of objects, by name. An entry that is a list is equivalent to an object with this list
   * in `listField`.
   */
  objectsByName<T>(
    field: string,
    listField: string,
    read: (reader: FieldReader, name: string) => T,
  ): Record<string, T>;
  /** Reads a list of objects. */
  objects<T>(field: string, read: (reader: FieldReader) => T): T[];
  /** Reads a list of objects that are passed on with all their fields. `check` returns the problem of one, or null. */
  plainObjects(
    field: string,
    check: (object: Readonly<Record<string, unknown>>) => string | null,
  ): Readonly<Record<string, unknown>>[];
  object<T>(field: string, read: (reader: FieldReader) => T): T;
  optionalObject<T>(field: string, read: (reader: FieldReader) => T): T | null;
  /** Reads a duration such as "30s" or "1m30s" (Go's notation), in milliseconds. */
  duration(field: string, fallbackMs: number): number;
  /** Marks fields as known, with any value. */
  ignore(...fields: string[]): void;
  /** Returns the fields that were neither read nor ignored, including nested ones: "iptables.foo". */
  unknownFields(): string[];
  /** Makes `finish` ignore unknown fields. */
  ignoreUnknown(): void;
  /** Adds a problem of a field. */
  problem(field: string, message: string): void;
  /** Throws FairleadError "bad-config" with all problems, including unknown fields. */
  finish(op: string): void;
}

export function fieldReader(document: unknown): FieldReader {
  const problems: string[] = [];
  const reader = nested(document, '', problems);
  let isLenient = false;
  return {
    ...reader,
    ignoreUnknown() {
      isLenient = true;
    },
    finish(op) {
      const unknown = isLenient ? [] : reader.unknownFields().map((field) => `${field}: unknown field`);
      const all = [...problems, ...unknown];
      if (all.length === 0) return;
      throw new FairleadError(all.join('; '), {
        op,
        code: 'bad-config',
        hint: 'correct the configuration file',
      });
    },
  };
}

function nested(document: unknown, path: string, problems: string[]): FieldReader {
  const isObject = typeof document === 'object' && document !== null && !Array.isArray(document);
  if (!isObject) problems.push(`${path === '' ? 'the document' : path}: must be an object`);
  const fields = (isObject ? document : {}) as Record<string, unknown>;
  const known = new Set<string>();
  const children: (() => string[])[] = [];
  const name = (field: string) => (path === '' ? field : `${path}.${field}`);
  const problem = (field: string, message: string) => {
    problems.push(`${name(field)}: ${message}`);
  };
  const get = (field: string): unknown => {
    known.add(field);
    return fields[field] ?? undefined;
  };
  /** Returns a list; null: there is none, or something else, which is a problem. */
  const list = (field: string): readonly unknown[] | null => {
    const value = get(field);
    if (value === undefined || Array.isArray(value)) return value ?? null;
    problem(field, `must be a list, not ${JSON.stringify(value)}`);
    return null;
  };
  const child = <T>(field: string, value: unknown, read: (reader: FieldReader) => T): T => {
    const reader = nested(value, name(field), problems);
    children.push(reader.unknownFields);
    return read(reader);
  };

  const reader: FieldReader = {
    text(field, fallback) {
      const value = get(field);
      if (value === undefined) return fallback;
      if (typeof value === 'string') return value;
      problem(field, `must be a string, not ${JSON.stringify(value)}`);
      return fallback;
    },
    optionalText(field) {
      const value = reader.text(field, '');
      return value === '' ? null : value;
    },
    flag(field, fallback) {
      const value = get(field);
      if (value === undefined) return fallback;
      if (typeof value === 'boolean') return value;
      problem(field, `must be true or false, not ${JSON.stringify(value)}`);
      return fallback;
    },
    number(field, fallback, min, max) {
      return reader.optionalNumber(field, min, max) ?? fallback;
    },
    optionalNumber(field, min, max) {
      const value = get(field);
      if (value === undefined) return null;
      if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
      problem(field, `must be an integer from ${min} to ${max}, not ${JSON.stringify(value)}`);
      return null;
    },
    choice(field, choices, fallback) {
      const value = get(field);
      if (value === undefined) return fallback;
      const found = choices.find((choice) => choice === value);
      if (found !== undefined) return found;
      problem(field, `must be one of ${choices.join(', ')}, not ${JSON.stringify(value)}`);
      return fallback;
    },
    texts(field, fallback, check) {
      const items = list(field);
      if (items === null) return [...fallback];
      return items.flatMap((item, i) => {
        const wrong = typeof item === 'string' ? (check?.(item) ?? null) : 'must be a string';
        if (wrong !== null) {
          problem(`${field}[${i}]`, `${JSON.stringify(item)} ${wrong}`);
          return [];
        }
        return [item as string];
      });
    },
    listsByName(field, checkName, check) {
      const value = get(field);
      if (value === undefined) return {};
      return child(field, value, (lists) => {
        const names = typeof value === 'object' && !Array.isArray(value) ? Object.keys(value ?? {}) : [];
        for (const one of names) {
          const wrong = checkName(one);
          if (wrong !== null) lists.problem(one, wrong);
        }
        return Object.fromEntries(names.map((one) => [one, lists.texts(one, [], check)]));
      });
    },
    textsByName(field) {
      const value = get(field);
      if (value === undefined) return {};
      return child(field, value, (texts) => {
        const names = typeof value === 'object' && !Array.isArray(value) ? Object.keys(value ?? {}) : [];
        return Object.fromEntries(names.map((one) => [one, texts.text(one, '')]));
      });
    },
    objectsByName<T>(
      field: string,
      listField: string,
      read: (reader: FieldReader, entry: string) => T,
    ): Record<string, T> {
      const value = get(field);
      if (value === undefined) return {};
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        problem(field, `must be an object, not ${JSON.stringify(value)}`);
        return {};
      }
      const entries = Object.entries(value).map(([one, content]): [string, T] => {
        const entry: unknown = Array.isArray(content) ? { [listField]: content } : content;
        return [one, child(`${field}.${one}`, entry, (entryReader) => read(entryReader, one))];
      });
      return Object.fromEntries(entries);
    },
    objects(field, read) {
      return (list(field) ?? []).map((item, i) => child(`${field}[${i}]`, item, read));
    },
    plainObjects(field, check) {
      return (list(field) ?? []).flatMap((item, i) => {
        const isObject = typeof item === 'object' && item !== null && !Array.isArray(item);
        const wrong = isObject ? check(item as Record<string, unknown>) : 'must be an object';
        if (wrong === null) return [item as Record<string, unknown>];
        problem(`${field}[${i}]`, wrong);
        return [];
      });
    },
    duration(field, fallbackMs) {
      const value = get(field);
      if (value === undefined) return fallbackMs;
      const milliseconds = typeof value === 'string' ? parseDuration(value) : value === 0 ? 0 : null;
      if (milliseconds !== null) return milliseconds;
      problem(field, `must be a duration such as 30s or 1m30s, not ${JSON.stringify(value)}`);
      return fallbackMs;
    },
    object(field, read) {
      return child(field, get(field) ?? {}, read);
    },
    optionalObject(field, read) {
      const value = get(field);
      return value === undefined ? null : child(field, value, read);
    },
    ignore(...names) {
      for (const field of names) known.add(field);
    },
    unknownFields: () => [
      ...Object.keys(fields)
        .filter((field) => !known.has(field))
        .map(name),
      ...children.flatMap((unknown) => unknown()),
    ],
    ignoreUnknown() {},
    problem,
    finish() {},
  };
  return reader;
}

/** Parses a duration in Go's notation ("1h2m3.5s") to milliseconds; returns null if it is invalid or negative. */
function parseDuration(text: string): number | null {
  const ms = parseGoDuration(text);
  return typeof ms === 'number' && ms >= 0 ? ms : null;
}
