/** The factors of a product: name → its values. */
export type Factors<T> = { readonly [K in keyof T]: readonly T[K][] };

/** Set by `./test all --full`: tests of combinations take the full product instead of a pairwise choice. */
export const TAKES_FULL_PRODUCT = process.env['FAIRLEAD_TEST_FULL'] === '1';

/**
 * Chooses combinations of a product so that each pair of values of two factors occurs in at least one: enough where a fault
 * depends on at most two factors. Greedy, as in AETG (Cohen et al., 1997), and deterministic; `rotation`: another choice of the
 * same size class, so that several suites of one product cover more of it together.
 */
export function pairwise<T extends object>(factors: Factors<T>, rotation = 0): T[] {
  const names = Object.keys(factors) as (keyof T)[];
  const rows = rotate(productOf(factors), rotation);
  const left = new Set(rows.flatMap((row) => pairsOf(row)));
  const chosen: T[] = [];
  while (left.size > 0) {
    let best = rows[0];
    let bestCount = -1;
    for (const row of rows) {
      const count = pairsOf(row).filter((pair) => left.has(pair)).length;
      if (count > bestCount) [best, bestCount] = [row, count];
    }
    if (best === undefined || bestCount <= 0) break;
    for (const pair of pairsOf(best)) left.delete(pair);
    chosen.push(best);
  }
  return names.length === 1 ? rows : chosen;

  function pairsOf(row: T): string[] {
    return names.flatMap((a, i) =>
      names.slice(i + 1).map((b) => `${String(a)}=${row[a]} ${String(b)}=${row[b]}`),
    );
  }
}

/** Returns all combinations. */
export function productOf<T extends object>(factors: Factors<T>): T[] {
  const names = Object.keys(factors) as (keyof T)[];
  let rows: Partial<T>[] = [{}];
  for (const name of names)
    rows = rows.flatMap((row) => factors[name].map((value) => ({ ...row, [name]: value })));
  return rows as T[];
}

/** Returns the full product if it is asked for, otherwise the pairwise choice. */
export const combinations = <T extends object>(factors: Factors<T>, rotation = 0): T[] =>
  TAKES_FULL_PRODUCT ? productOf(factors) : pairwise(factors, rotation);

function rotate<T>(rows: readonly T[], by: number): T[] {
  const at = rows.length === 0 ? 0 : by % rows.length;
  return [...rows.slice(at), ...rows.slice(0, at)];
}
