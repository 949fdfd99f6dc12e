import { compareText } from './identity.ts';
import type { HostPattern } from './route-map.ts';

const LABEL = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
const HOST = new RegExp(`^(?:\\*\\.)?${LABEL}(?:\\.${LABEL})*$`);

/** Returns a hostname of an object in lower case; null if it is neither a DNS name nor "*." and a DNS name. */
export function readHostname(value: string): HostPattern | null {
  const name = value.toLowerCase();
  return name.length <= 253 && HOST.test(name) ? name : null;
}

/** Reports whether a name has this pattern; `oneLabel`: the wildcard stands for exactly one label. */
export function hostMatches(pattern: HostPattern, name: string, oneLabel = false): boolean {
  if (pattern === '') return true;
  if (!pattern.startsWith('*')) return pattern === name;
  const suffix = pattern.slice(1);
  if (!name.endsWith(suffix) || name.length === suffix.length) return false;
  return !oneLabel || !name.slice(0, -suffix.length).includes('.');
}

/**
 * Returns the names that have both patterns, as one pattern; null if there are none. Wildcards stand for one or more labels.
 */
export function intersectHosts(a: HostPattern, b: HostPattern): HostPattern | null {
  if (a === '' || a === b) return b;
  if (b === '') return a;
  if (b.startsWith('*') && a.endsWith(b.slice(1))) return a.startsWith('*') || hostMatches(b, a) ? a : null;
  if (a.startsWith('*') && b.endsWith(a.slice(1))) return b.startsWith('*') || hostMatches(a, b) ? b : null;
  return null;
}

/** Orders patterns by how specific they are: whole names, then wildcards by length, then "". */
export function compareHosts(a: HostPattern, b: HostPattern): number {
  const kind = (pattern: HostPattern) => (pattern === '' ? 2 : pattern.startsWith('*') ? 1 : 0);
  return kind(a) - kind(b) || b.length - a.length || compareText(a, b);
}

/** Returns the patterns that a name can have, most specific first: itself, wildcards of its parents, "". */
export function patternsOf(name: string): readonly HostPattern[] {
  const patterns = name.startsWith('*') ? [] : [name];
  const start = name.startsWith('*.') ? 2 : 0;
  for (let dot = name.indexOf('.', start); dot >= 0; dot = name.indexOf('.', dot + 1))
    patterns.push(`*${name.slice(dot)}`);
  return [...patterns, ''];
}
