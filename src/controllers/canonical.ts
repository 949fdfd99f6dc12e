import { createHash } from 'node:crypto';

/** Serializes JSON with sorted keys, without undefined and null: equal texts mean equal API values. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (inner === null) return undefined;
    if (typeof inner !== 'object' || Array.isArray(inner)) return inner;
    const entries = Object.entries(inner).filter(([, field]) => field !== undefined && field !== null);
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** Reports whether both are equal for the API: field order, null and absence make no difference. */
export function same(a: unknown, b: unknown): boolean {
  return a === b || canonical(a ?? null) === canonical(b ?? null);
}

// As upstream's SafeEncodeString: no vowels or ambiguous characters.
const ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** Returns a short name for a value, for labels and names: ten letters that depend only on the value and `salt`. */
export function hashOf(value: unknown, salt = 0): string {
  const digest = createHash('sha256')
    .update(`${salt}\n${canonical(value)}`)
    .digest();
  return [...digest.subarray(0, 10)].map((byte) => ALPHABET[byte % ALPHABET.length]).join('');
}
