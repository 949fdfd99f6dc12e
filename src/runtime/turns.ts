/** Runs work now, or when its turn comes. */
export type Turns = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Lets so many works run at once and the others wait, first come, first served. Starting hundreds of containers takes
 * as long either way; in turns, the first ones are up at once and not all of them at the end.
 */
export function takeTurns(most: number): Turns {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await work();
    } finally {
      // Whoever is next takes over the place.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
