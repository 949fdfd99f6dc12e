/** Reports whether two lists have the same items in the same order. */
export const areEqual = (a: readonly string[], b: readonly string[]): boolean =>
  a === b || (a.length === b.length && a.every((one, i) => one === b[i]));

/** Reports whether two lists without duplicates have the same items, in any order. */
export function haveEqualMembers(a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false;
  if (areEqual(a, b)) return true;
  const members = new Set(a);
  return b.every((one) => members.has(one));
}
