import { createHash } from 'node:crypto';

/** JSON with sorted keys, without undefined and null: equal texts mean equal API values. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (inner === null) return undefined;
    if (typeof inner !== 'object' || Array.isArray(inner)) return inner;
    const entries = Object.entries(inner).filter(([, field]) => field !== undefined && field !== null);
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** True when both are the same for the API: order of fields, null and absence make no difference. */
export function same(a: unknown, b: unknown): boolean {
  return a === b || canonical(a ?? null) === canonical(b ?? null);
}

// As upstream's SafeEncodeString: no vowels, nothing that could be misread.
const ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** A short name for a value, for labels and names: ten letters that depend on nothing but the value. */
export function hashOf(value: unknown, salt = 0): string {
  const digest = createHash('sha256')
    .update(`${salt}\n${canonical(value)}`)
    .digest();
  return [...digest.subarray(0, 10)].map((byte) => ALPHABET[byte % ALPHABET.length]).join('');
}
