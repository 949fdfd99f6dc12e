type Json = Record<string, unknown>;

/** One changed value: the members that lead to it, and the value, which is left out if the value is. */
export type Change = readonly [path: readonly (string | number)[], value?: unknown];

/** Returns the changes that make `after` of `before`. Lists of another length change as a whole. */
export function changesOf(
  before: unknown,
  after: unknown,
  path: readonly (string | number)[] = [],
): Change[] {
  if (same(before, after)) return [];
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return before.flatMap((item, index) => changesOf(item, after[index], [...path, index]));
  }
  if (isObject(before) && isObject(after)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
    return keys.flatMap((key) => {
      if (!Object.hasOwn(after, key)) return [[[...path, key]] as Change];
      return changesOf(before[key], after[key], [...path, key]);
    });
  }
  return [[path, after]];
}

/** Returns `before` with the changes; does not alter it, but shares with it the parts that do not change. */
export function changedBy(before: unknown, changes: readonly Change[]): unknown {
  let result = before;
  for (const change of changes) result = withChange(result, change, 0);
  return result;
}

function withChange(before: unknown, change: Change, depth: number): unknown {
  const [path, value] = change;
  const step = path[depth];
  if (step === undefined) return value;
  const copy = (Array.isArray(before) ? [...before] : { ...(before as Json) }) as Json;
  if (depth === path.length - 1 && change.length === 1) delete copy[step];
  else copy[step] = withChange(copy[step], change, depth + 1);
  return copy;
}

/** Compares two values of JSON, whatever the order of members. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, index) => same(item, b[index]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]))
  );
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
