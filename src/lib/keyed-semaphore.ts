/** Limits how many tasks run concurrently, in all and of each key; the others wait in order of arrival. */
export interface KeyedSemaphore {
  /** Runs the task as soon as there is room for it, and settles with its result. */
  run<T>(key: string, task: () => Promise<T>): Promise<T>;
  /** Reports whether a task of another key waits that this one's end would start. */
  isAwaited(key: string): boolean;
}

export interface KeyedLimits {
  readonly limit: number;
  readonly perKey: number;
}

export function createKeyedSemaphore({ limit, perKey }: KeyedLimits): KeyedSemaphore {
  const running = new Map<string, number>();
  const waiting: { readonly key: string; readonly start: () => void }[] = [];
  let count = 0;
  const runningOf = (key: string) => running.get(key) ?? 0;
  const change = (key: string, by: 1 | -1) => {
    count += by;
    const next = runningOf(key) + by;
    if (next > 0) running.set(key, next);
    else running.delete(key);
  };
  const startNext = () => {
    if (count >= limit) return;
    const at = waiting.findIndex(({ key }) => runningOf(key) < perKey);
    const [next] = at < 0 ? [] : waiting.splice(at, 1);
    if (!next) return;
    // Counted here, so that no later task takes its place.
    change(next.key, 1);
    next.start();
  };
  return {
    async run(key, task) {
      if (count < limit && runningOf(key) < perKey) change(key, 1);
      else await new Promise<void>((start) => waiting.push({ key, start }));
      try {
        return await task();
      } finally {
        change(key, -1);
        startNext();
      }
    },
    isAwaited: (own) => waiting.some(({ key }) => key !== own && runningOf(key) < perKey),
  };
}
