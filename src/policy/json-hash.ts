import { hash } from 'node:crypto';

/** Returns a short hash of a value of JSON, independent of the order of an object's fields. */
export function hashOf(value: unknown): string {
  return hash('sha256', canonical(value), 'hex').slice(0, 12);
}

/** Writes JSON with sorted fields; several times faster than JSON.stringify with a function that sorts them. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${canonical(field)}`).join(',')}}`;
}
