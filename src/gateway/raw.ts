/**
 * Reads fields of API objects whose types are not trusted: a field of another type is treated as absent. The API server's
 * schemas refuse such objects; what an attach says about a missing field then also covers the wrong one.
 */
export type Raw = Readonly<Record<string, unknown>>;

const NOTHING: Raw = {};
const NONE: readonly unknown[] = [];

/** Returns a value as an object; `{}` if it is anything else. */
export const record = (value: unknown): Raw => (isRecord(value) ? value : NOTHING);

/** Returns a value as a list; empty if it is anything else. */
export const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : NONE);

/** Returns a value as text; "" if it is anything else. */
export const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Returns a value as text; null if it is absent, empty or anything else. */
export const optionalText = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' ? value : null;

/** Returns a whole number within bounds, or null. */
export const integer = (value: unknown, low: number, high: number): number | null =>
  typeof value === 'number' && Number.isInteger(value) && value >= low && value <= high ? value : null;

export const portNumber = (value: unknown): number | null => integer(value, 1, 65535);

export function isRecord(value: unknown): value is Raw {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Formats a value of unknown type for a message: quoted, and truncated if long. */
export function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  const shown =
    typeof value === 'object' && value !== null
      ? Array.isArray(value)
        ? 'a list'
        : 'an object'
      : JSON.stringify(value);
  return shown.length > 80 ? `${shown.slice(0, 77)}…"` : shown;
}
