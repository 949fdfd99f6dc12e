/**
 * Looks again until `look` returns what is neither undefined, null nor false, and returns it. Throws with `what` when
 * that does not come about within `ms` milliseconds, which are meant for a machine that is busy.
 */
export async function eventually<T>(
  look: () => T | Promise<T>,
  what = 'it',
  ms = 30_000,
): Promise<Exclude<T, undefined | null | false>> {
  for (const end = performance.now() + ms; ; await new Promise((resolve) => setTimeout(resolve, 5))) {
    const seen = await look();
    if (seen !== undefined && seen !== null && seen !== false)
      return seen as Exclude<T, undefined | null | false>;
    if (performance.now() > end) throw new Error(`in ${ms / 1000} s it never came about: ${what}`);
  }
}
