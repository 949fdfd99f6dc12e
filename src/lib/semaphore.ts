/** Limits how many tasks run concurrently; the others wait in order of arrival. */
export interface Semaphore {
  /** Whether a task is running. */
  readonly busy: boolean;
  /** Runs the task as soon as there is room for it, and settles with its result. */
  run<T>(task: () => Promise<T>): Promise<T>;
}

/** Creates a semaphore. `limit`: number of tasks that may run concurrently. */
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
        // The slot passes directly to the next task, so that no later task overtakes it.
        const next = waiting.shift();
        if (next) next();
        else running--;
      }
    },
  };
}

/** Creates a mutex: one task runs at a time. */
export const createMutex = (): Semaphore => createSemaphore(1);
