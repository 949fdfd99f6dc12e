const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 50;

/**
 * Calls `look` until its value satisfies `holds` (by default: until it is neither undefined, null nor
 * false) and returns that value. Throws with the last value after `ms` milliseconds, a generous limit for a
 * busy machine.
 */
export function eventually<T>(look: () => T | Promise<T>): Promise<Exclude<T, undefined | null | false>>;
export function eventually<T>(
  look: () => T | Promise<T>,
  holds: (value: T) => boolean,
  ms?: number,
): Promise<T>;
export async function eventually<T>(
  look: () => T | Promise<T>,
  holds: (value: T) => boolean = isPresent,
  ms = 90_000,
): Promise<T> {
  const end = performance.now() + ms;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    const value = await look();
    if (holds(value)) return value;
    if (performance.now() > end) {
      throw new Error(`after ${ms / 1000} s the value is still ${JSON.stringify(value)}: ${look} ${holds}`);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

const isPresent = (value: unknown) => value !== undefined && value !== null && value !== false;
