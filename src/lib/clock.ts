/** A source of time; tests pass one that they advance manually. */
export interface Clock {
  /** Returns milliseconds since 1970, like `Date.now()`. */
  now(): number;
  /** Calls `run` once after `ms` milliseconds; the result cancels it. */
  after(ms: number, run: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** Resolves after `ms` milliseconds, or at once if `signal` aborts; never rejects. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const finish = () => {
      cancel();
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const cancel = clock.after(ms, finish);
    signal?.addEventListener('abort', finish);
  });
}

/** The parts of a wait, each of which ends late if the process was stopped meanwhile. */
const PARTS = 4;
/** The late parts of a wait that are repeated: on a machine that is always late, a wait still ends. */
const MAX_REPEATS = 8;

/**
 * Calls `run` once after `ms` milliseconds during which this process ran, and after the events that were waiting then. For
 * timeouts of answers: time in which neither this process nor an answer could make progress, such as a pause of the
 * machine, does not count. The result cancels it.
 */
export function afterRunning(clock: Clock, ms: number, run: () => void): () => void {
  const part = ms / PARTS;
  let left = PARTS;
  let repeats = 0;
  let isCancelled = false;
  let cancel = () => {};
  const next = () => {
    const due = clock.now() + part;
    cancel = clock.after(part, () => {
      const isLate = clock.now() - due > part;
      if (!isLate || ++repeats > MAX_REPEATS) left--;
      if (left > 0) next();
      // Timers run before the events of sockets are read.
      else
        setImmediate(() => {
          if (!isCancelled) run();
        });
    });
  };
  next();
  return () => {
    isCancelled = true;
    cancel();
  };
}

/** A clock that advances only by `advance`, which runs due timers in order. */
export interface ManualClock extends Clock {
  advance(ms: number): void;
  /** Advances at once, as for a process that did not run meanwhile: timers that were due run late. */
  skip(ms: number): void;
}

export function manualClock(start = 0): ManualClock {
  let now = start;
  let timers: { at: number; run: () => void }[] = [];
  return {
    now: () => now,
    after(ms, run) {
      const timer = { at: now + ms, run };
      timers.push(timer);
      return () => {
        timers = timers.filter((other) => other !== timer);
      };
    },
    advance(ms) {
      const until = now + ms;
      for (;;) {
        const next = timers.filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        timers = timers.filter((timer) => timer !== next);
        now = next.at;
        next.run();
      }
      now = until;
    },
    skip(ms) {
      now += ms;
      const due = timers.filter((timer) => timer.at <= now).sort((a, b) => a.at - b.at);
      timers = timers.filter((timer) => !due.includes(timer));
      for (const { run } of due) run();
    },
  };
}

/** Blocks this thread, for the kernel to finish what it does without a notification. Use it where nothing can be awaited. */
export function blockFor(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
