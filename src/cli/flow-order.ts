/** Shows entries of several nodes in the order of their times. */
export interface FlowOrder<T> {
  add(entry: T): void;
  /** Shows what has waited long enough. */
  release(): void;
  /** Shows all that waits. */
  flush(): void;
}

export interface FlowOrderOptions<T> {
  /** Milliseconds since 1970, by the clock of the entry's node. */
  readonly timeOf: (entry: T) => number;
  readonly show: (entry: T) => void;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** How long an entry waits for others with earlier times. */
  readonly holdMs: number;
}

/** Entries that wait at most; with more, the earliest are shown at once. */
const MAX_WAITING = 20_000;

/** Creates an order. The clocks of nodes may differ: an entry waits by its arrival, not by its time. */
export function createFlowOrder<T>({ timeOf, show, now, holdMs }: FlowOrderOptions<T>): FlowOrder<T> {
  let waiting: { readonly entry: T; readonly time: number; readonly arrived: number }[] = [];
  const showFirst = (count: number) => {
    for (const { entry } of waiting.splice(0, count)) show(entry);
  };
  const sort = () => {
    waiting = waiting.toSorted((a, b) => a.time - b.time);
  };
  return {
    add(entry) {
      waiting.push({ entry, time: timeOf(entry), arrived: now() });
      if (waiting.length <= MAX_WAITING) return;
      sort();
      showFirst(MAX_WAITING / 2);
    },
    release() {
      sort();
      const due = now() - holdMs;
      // Those with earlier times come before one that is due.
      showFirst(waiting.findLastIndex(({ arrived }) => arrived <= due) + 1);
    },
    flush() {
      sort();
      showFirst(waiting.length);
    },
  };
}
