import type { ObjectMeta } from '../kube/types.ts';
import { ownMember } from '../lib/own-member.ts';

export { at, isObject, type Json, type JsonObject, listAt, textAt } from '../kube/json.ts';

/** An object of the API inside the server: metadata is always present, the other fields depend on the kind. */
export interface ApiObject {
  apiVersion: string;
  kind: string;
  metadata: { -readonly [Field in keyof ObjectMeta]: ObjectMeta[Field] };
  [field: string]: unknown;
}

/** Compares values as JSON: the order of fields does not matter; an absent field equals an undefined one. */
export function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, i) => equal(item, b[i]));
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  const fields = new Set([...Object.keys(left), ...Object.keys(right)]);
  for (const field of fields) if (!equal(ownMember(left, field), ownMember(right, field))) return false;
  return true;
}

/** Returns a text that two values have in common if they are equal as JSON, whatever the order of fields: a key of maps. */
export function valueText(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined';
  if (Array.isArray(value)) return `[${value.map(valueText).join()}]`;
  const fields = Object.entries(value).filter(([, one]) => one !== undefined);
  fields.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([field, one]) => `${JSON.stringify(field)}:${valueText(one)}`).join()}}`;
}

/** Reports whether a write requires a version of the object; 0 is none, as in upstream. */
export const namesVersion = ({ metadata }: ApiObject): boolean =>
  !/^0*$/.test(metadata.resourceVersion ?? '');

/** Returns the name of a JSON value's type: "array", "object", "string", "number", "bool" or "null". */
export function jsonType(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value === 'boolean' ? 'bool' : typeof value;
}
