import type { Clock } from './clock.ts';

export interface WorkQueueOptions {
  /** Brings what the key names into its wanted state. A rejection puts the key back after a pause. */
  readonly process: (key: string) => Promise<void>;
  /** How many keys are worked on at once. Default 16. */
  readonly concurrency?: number;
  readonly clock: Clock;
  /** 0 ≤ n < 1; spreads retries. */
  readonly random: () => number;
  /** No key is begun after it aborts. */
  readonly signal: AbortSignal;
  /** Called for each rejection, before the key is put back. `attempt` counts from 1. */
  readonly onError?: (key: string, error: unknown, attempt: number) => void;
  /** First pause after a rejection; each further one doubles it. Default 5 ms. */
  readonly firstBackoffMs?: number;
  /** Longest pause. Default 30 s. */
  readonly maxBackoffMs?: number;
}

/**
 * Keys that wait to be worked on. A key that is added many times while it waits is worked on once; one that is added
 * while it is worked on is worked on once more afterwards, never twice at the same time.
 */
export interface WorkQueue {
  add(key: string): void;
  /** Adds the key after `ms`; of several delays for a key the earliest counts. */
  addAfter(key: string, ms: number): void;
  /** Keys that wait or are worked on, without those that a timer holds. */
  readonly size: number;
  /** Resolves as soon as nothing waits and nothing is worked on; after an abort, when the last has finished. */
  idle(): Promise<void>;
}

export function createWorkQueue(options: WorkQueueOptions): WorkQueue {
  const { clock, random, signal, concurrency = 16 } = options;
  const { firstBackoffMs = 5, maxBackoffMs = 30_000 } = options;
  const waiting = new Set<string>();
  const active = new Set<string>();
  /** Added again while being worked on. */
  const again = new Set<string>();
  const failures = new Map<string, number>();
  const timers = new Map<string, { at: number; cancel: () => void }>();
  let idlers: (() => void)[] = [];
  let scheduled = false;

  const settle = () => {
    if (active.size > 0 || (waiting.size > 0 && !signal.aborted)) return;
    const resolved = idlers;
    idlers = [];
    for (const resolve of resolved) resolve();
  };
  const work = async (key: string) => {
    try {
      await options.process(key);
      failures.delete(key);
    } catch (error) {
      const attempt = (failures.get(key) ?? 0) + 1;
      failures.set(key, attempt);
      if (!signal.aborted) {
        options.onError?.(key, error, attempt);
        const delay = Math.min(firstBackoffMs * 2 ** (attempt - 1), maxBackoffMs);
        addAfter(key, delay * (0.5 + random() / 2));
      }
    } finally {
      active.delete(key);
      if (again.delete(key)) add(key);
      schedule();
      settle();
    }
  };
  const begin = () => {
    scheduled = false;
    for (const key of waiting) {
      if (signal.aborted || active.size >= concurrency) break;
      waiting.delete(key);
      active.add(key);
      void work(key);
    }
    settle();
  };
  // Not in the same turn of the event loop: the rest of a burst of events is added before the work begins.
  const schedule = () => {
    if (scheduled || waiting.size === 0 || signal.aborted) return;
    scheduled = true;
    setImmediate(begin);
  };
  const add = (key: string) => {
    if (signal.aborted) return;
    if (active.has(key)) again.add(key);
    else waiting.add(key);
    schedule();
  };
  const addAfter = (key: string, ms: number) => {
    if (signal.aborted) return;
    const at = clock.now() + ms;
    const known = timers.get(key);
    if (known && known.at <= at) return;
    known?.cancel();
    const cancel = clock.after(ms, () => {
      timers.delete(key);
      add(key);
    });
    timers.set(key, { at, cancel });
  };
  signal.addEventListener('abort', () => {
    for (const timer of timers.values()) timer.cancel();
    timers.clear();
    waiting.clear();
    again.clear();
    settle();
  });

  return {
    add,
    addAfter,
    get size() {
      return waiting.size + active.size;
    },
    idle: () =>
      new Promise((resolve) => {
        idlers.push(resolve);
        settle();
      }),
  };
}
