/** Decoded JSON of any shape. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [field: string]: Json | undefined;
}

/** True for a JSON object: not for null or a list. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value at a path of fields, undefined where any is absent. */
export function at(object: unknown, ...path: (string | number)[]): unknown {
  let value = object;
  for (const field of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Record<string | number, unknown>)[field];
  }
  return value;
}

/** The text at a path; empty where there is none. */
export function textAt(object: unknown, ...path: string[]): string {
  const value = at(object, ...path);
  return typeof value === 'string' ? value : '';
}

/** The list at a path; empty where there is none. */
export function listAt(object: unknown, ...path: string[]): JsonObject[] {
  const value = at(object, ...path);
  return Array.isArray(value) ? (value as JsonObject[]) : [];
}
