/** Returns the places of values that an earlier one equals. */
export function repeats(values: readonly unknown[]): ReadonlySet<number> {
  const known = new Set<unknown>();
  const found = new Set<number>();
  for (const [at, value] of values.entries()) {
    if (known.has(value)) found.add(at);
    known.add(value);
  }
  return found;
}
