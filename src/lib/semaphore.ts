/** Limits how many tasks run at once; the others wait, first come, first served. */
export interface Semaphore {
  /** A task is running. */
  readonly busy: boolean;
  /** Runs the task as soon as there is room for it, and settles as it does. */
  run<T>(task: () => Promise<T>): Promise<T>;
}

/** `limit`: tasks that may run at the same time. */
export function createSemaphore(limit: number): Semaphore {
  let running = 0;
  const waiting: (() => void)[] = [];
  return {
    get busy() {
      return running > 0;
    },
    async run(task) {
      if (running >= limit) await new Promise<void>((resolve) => waiting.push(resolve));
      else running++;
      try {
        return await task();
      } finally {
        // The place goes to the next task directly, so that none that comes meanwhile overtakes it.
        const next = waiting.shift();
        if (next) next();
        else running--;
      }
    },
  };
}

/** Runs one task at a time. */
export const createMutex = (): Semaphore => createSemaphore(1);
