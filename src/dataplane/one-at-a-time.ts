/** Runs work, one piece at a time. */
export interface OneAtATime {
  readonly busy: boolean;
  /** Throws when another piece of work is under way. */
  run<T>(work: () => Promise<T>): Promise<T>;
}

/** For dataplanes, whose calls never overlap: a caller that breaks this is told so before the kernel's state is. */
export function createOneAtATime(): OneAtATime {
  let busy = false;
  return {
    get busy() {
      return busy;
    },
    async run(work) {
      if (busy) throw new Error('calls of a dataplane must not overlap');
      busy = true;
      try {
        return await work();
      } finally {
        busy = false;
      }
    },
  };
}
