import type { FieldSet } from './field-set.ts';
import type { Json } from './object.ts';

/**
 * Returns the set with its elements in upstream's order, since clients compare it as text: the node itself, fields, items by
 * their keys, by their values, and by their index (structured-merge-diff, fieldpath/element.go). A set that is in order is
 * returned as it is.
 */
export function orderedFields(set: FieldSet): FieldSet {
  const entries = Object.entries(set);
  let isOrdered = true;
  let before: string | null = null;
  for (const entry of entries) {
    const [element, child] = entry;
    entry[1] = orderedFields(child);
    if (entry[1] !== child || (before !== null && compareElements(before, element) > 0)) isOrdered = false;
    before = element;
  }
  if (isOrdered) return set;
  return Object.fromEntries(entries.sort(([a], [b]) => compareElements(a, b)));
}

const KINDS = '.fkvi';

function compareElements(a: string, b: string): number {
  const kinds = KINDS.indexOf(a[0] ?? '') - KINDS.indexOf(b[0] ?? '');
  if (kinds !== 0) return kinds;
  switch (a[0]) {
    case 'k':
      return compareKeys(JSON.parse(a.slice(2)), JSON.parse(b.slice(2)));
    case 'v':
    case 'i':
      return compareValues(JSON.parse(a.slice(2)), JSON.parse(b.slice(2)));
    default:
      return compareTexts(a, b);
  }
}

/** Compares the keys of two items: name by name in alphabetical order, then by the number of names. */
function compareKeys(a: Readonly<Record<string, Json>>, b: Readonly<Record<string, Json>>): number {
  const [ofA, ofB] = [Object.entries(a).sort(byName), Object.entries(b).sort(byName)];
  for (const [i, [name, value]] of ofA.entries()) {
    const [otherName, otherValue] = ofB[i] ?? [];
    if (otherName === undefined || otherValue === undefined) return 1;
    const order = compareTexts(name, otherName) || compareValues(value, otherValue);
    if (order !== 0) return order;
  }
  return ofA.length - ofB.length;
}

const byName = ([a]: readonly [string, Json], [b]: readonly [string, Json]): number => compareTexts(a, b);

/** Numbers come before texts, and texts before the others (structured-merge-diff, value/value.go). */
function compareValues(a: Json, b: Json): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  const rank = (value: Json) => (typeof value === 'number' ? 0 : typeof value === 'string' ? 1 : 2);
  return rank(a) - rank(b) || compareTexts(String(a), String(b));
}

const compareTexts = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);
