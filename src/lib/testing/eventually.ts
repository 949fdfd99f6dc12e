const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 50;
/**
 * After a look that took long, such as one that starts a process, the pause is so many times as long: a wait would
 * otherwise take a whole processor from what it waits for.
 */
const PAUSES_FOR_A_LOOK = 2;
const MAX_LONG_PAUSE_MS = 500;

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
    const begin = performance.now();
    const value = await look();
    const lookMs = performance.now() - begin;
    if (holds(value)) return value;
    if (performance.now() > end) {
      throw new Error(`after ${ms / 1000} s the value is still ${JSON.stringify(value)}: ${look} ${holds}`);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(pauseMs, longPause(lookMs))));
  }
}

const longPause = (lookMs: number) =>
  lookMs < MAX_PAUSE_MS ? 0 : Math.min(PAUSES_FOR_A_LOOK * lookMs, MAX_LONG_PAUSE_MS);

const isPresent = (value: unknown) => value !== undefined && value !== null && value !== false;
