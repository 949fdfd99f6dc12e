/** Does a piece of work of one subject; returns true if the subject has more that can be done at once. Must not throw. */
export type Step = () => boolean;

/**
 * Divides a process between subjects: each has one step at a time, in turns, and all together have `budgetMs` of each turn of the
 * event loop, so that what else the process does never waits for longer.
 */
export interface FairTurns {
  /** Does steps of the subject, now or in a later turn, until it has none. */
  run(step: Step): void;
}

/** `now`: milliseconds; `later` calls a function in the next turn of the event loop. */
export function createFairTurns(
  budgetMs: number,
  now: () => number = () => performance.now(),
  later: (call: () => void) => void = setImmediate,
): FairTurns {
  /** In the order of their turns. */
  const waiting = new Set<Step>();
  /** When the steps of this turn of the event loop end; null: it has none yet. */
  let end: number | null = null;
  let isWorking = false;
  const work = () => {
    // From a step of its own.
    if (isWorking) return;
    if (end === null) {
      end = now() + budgetMs;
      later(() => {
        end = null;
        if (waiting.size > 0) work();
      });
    }
    isWorking = true;
    for (const step of waiting) {
      if (now() >= end) break;
      waiting.delete(step);
      // Behind the others.
      if (step()) waiting.add(step);
    }
    isWorking = false;
  };
  return {
    run(step) {
      waiting.add(step);
      work();
    },
  };
}
