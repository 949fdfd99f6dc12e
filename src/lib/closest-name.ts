/**
 * Returns the most likely name for a mistyped one: at most two edits away (one for names of up to four
 * letters), or the only one that it is a prefix of. Null: none.
 */
export function closestName(typed: string, names: readonly string[]): string | null {
  const limit = typed.length <= 4 ? 1 : 2;
  const ranked = names
    .map((name) => ({ name, edits: editDistance(typed, name) }))
    .filter(({ edits }) => edits <= limit)
    .sort((a, b) => a.edits - b.edits);
  if (ranked[0]) return ranked[0].name;
  const begun = names.filter((name) => typed.length >= 2 && name.startsWith(typed));
  return begun.length === 1 ? (begun[0] ?? null) : null;
}

/** Counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment distance). */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const replaced = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? at(i - 2, j - 2) + 1 : replaced;
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, replaced, swapped));
    }
  }
  return at(a.length, b.length);
}
