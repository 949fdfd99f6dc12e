/** Decoded JSON of any shape. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [field: string]: Json | undefined;
}

/** Reports whether a value is a JSON object: not null or a list. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the value at a path of fields; undefined if any is absent. */
export function at(object: unknown, ...path: (string | number)[]): unknown {
  let value = object;
  for (const field of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Record<string | number, unknown>)[field];
  }
  return value;
}

/** Returns the text at a path; "" if absent. */
export function textAt(object: unknown, ...path: string[]): string {
  const value = at(object, ...path);
  return typeof value === 'string' ? value : '';
}

/** Returns the list at a path; [] if absent. */
export function listAt(object: unknown, ...path: string[]): JsonObject[] {
  const value = at(object, ...path);
  return Array.isArray(value) ? (value as JsonObject[]) : [];
}
