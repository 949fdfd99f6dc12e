import type { ObjectMeta } from '../kube/types.ts';

/** Decoded JSON of any shape. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [field: string]: Json | undefined;
}

/** An object of the API inside the server: metadata is always there, the rest is the kind's own. */
export interface ApiObject {
  apiVersion: string;
  kind: string;
  metadata: { -readonly [Field in keyof ObjectMeta]: ObjectMeta[Field] };
  [field: string]: unknown;
}

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

export function textAt(object: unknown, ...path: string[]): string {
  const value = at(object, ...path);
  return typeof value === 'string' ? value : '';
}

/** The list at a path; empty where there is none. */
export function listAt(object: unknown, ...path: string[]): JsonObject[] {
  const value = at(object, ...path);
  return Array.isArray(value) ? (value as JsonObject[]) : [];
}

/** Equal as JSON: the order of fields does not matter; an absent field equals an undefined one. */
export function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, i) => equal(item, b[i]));
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  const fields = new Set([...Object.keys(left), ...Object.keys(right)]);
  for (const field of fields) if (!equal(left[field], right[field])) return false;
  return true;
}
