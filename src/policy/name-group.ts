import { hashOf } from './json-hash.ts';

/** The names of a peer of a rule. Equal groups have the same id. */
export interface NameGroup {
  readonly id: string;
  /** Sorted, in lower case, without the final dot: "api.example.com", "*.example.com". */
  readonly patterns: readonly string[];
}

/** The pattern of DomainName in policy.networking.k8s.io, in lower case: at least two labels, "*" as the whole first label only. */
const PATTERN = /^(\*\.)?([a-z0-9]([-a-z0-9_]*[a-z0-9])?\.)+[a-z0-9]([-a-z0-9_]*[a-z0-9])?$/;
/** RFC 1035, without the final dot. */
const MAX_NAME = 253;
const MAX_LABEL = 63;
/** Letters, digits, hyphens and underscores: other bytes of a label are escaped in a name's text, and match no pattern. */
const PLAIN = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$/;

/** Returns a pattern in its canonical form; null: it is none. International names have to be in their form with "xn--". */
export function readNamePattern(text: string): string | null {
  if (text.length > MAX_NAME + 1 || !PLAIN.test(text.replace(/^\*\./, ''))) return null;
  const pattern = text.toLowerCase().replace(/\.$/, '');
  const isValid =
    PATTERN.test(pattern) &&
    pattern.length <= MAX_NAME &&
    pattern.split('.').every((label) => label.length <= MAX_LABEL);
  return isValid ? pattern : null;
}

/** Returns the group of patterns in canonical form. */
export function nameGroup(patterns: readonly string[]): NameGroup {
  const sorted = [...new Set(patterns)].sort();
  return { id: hashOf(sorted), patterns: sorted };
}

/** Returns a name of a DNS message as patterns are compared with it; null: it contains other bytes, and matches none. */
export function plainName(name: string): string | null {
  // Before letters are changed: some beyond ASCII become ASCII (the Kelvin sign).
  if (name.length > MAX_NAME + 1 || !PLAIN.test(name)) return null;
  const lower = name.toLowerCase().replace(/\.$/, '');
  return lower.length <= MAX_NAME ? lower : null;
}

/** Reports whether a name that `plainName` returned matches a pattern of the group: "*" stands for one or more whole labels. */
export const matchesNames = ({ patterns }: NameGroup, name: string): boolean =>
  patterns.some((pattern) =>
    pattern.startsWith('*.')
      ? name.length > pattern.length - 1 && name.endsWith(pattern.slice(1))
      : name === pattern,
  );
