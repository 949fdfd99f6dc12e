import { hashOf } from './json-hash.ts';

/** The names of a peer of a rule. Equal groups have the same id. */
export interface NameGroup {
  readonly id: string;
  /** Sorted, in lower case, without the final dot: "api.example.com", "*.example.com". */
  readonly patterns: readonly string[];
}

/** RFC 1035, without the final dot. */
const MAX_NAME = 253;
/** Letters, digits, hyphens and underscores: other bytes of a label are escaped in a name's text, and match no pattern. */
const PLAIN = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$/;

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

/**
 * Returns what finds the groups with a pattern that matches a name (`plainName`). It looks up the name and each of its ends, so that
 * the number of patterns, which users choose, does not count.
 */
export function indexNames<T>(groups: Iterable<readonly [NameGroup, T]>): (name: string) => T[] {
  const byPattern = new Map<string, T[]>();
  for (const [{ patterns }, value] of groups) {
    for (const pattern of patterns) {
      const known = byPattern.get(pattern);
      if (known) known.push(value);
      else byPattern.set(pattern, [value]);
    }
  }
  return (name) => {
    const found = new Set(byPattern.get(name));
    for (let dot = name.indexOf('.'); dot > 0; dot = name.indexOf('.', dot + 1))
      for (const value of byPattern.get(`*${name.slice(dot)}`) ?? []) found.add(value);
    return [...found];
  };
}

/** Reports whether a name that `plainName` returned matches a pattern of the group: "*" stands for one or more whole labels. */
export const matchesNames = ({ patterns }: NameGroup, name: string): boolean =>
  patterns.some((pattern) =>
    pattern.startsWith('*.')
      ? name.length > pattern.length - 1 && name.endsWith(pattern.slice(1))
      : name === pattern,
  );
