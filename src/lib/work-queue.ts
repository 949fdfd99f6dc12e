import type { Clock } from './clock.ts';

export interface WorkQueueOptions {
  /**
   * Reconciles the state that the key identifies. After a rejection the key is added again with a delay.
   */
  readonly process: (key: string) => Promise<void>;
  /** Number of keys processed concurrently. Default 16. */
  readonly concurrency?: number;
  readonly clock: Clock;
  /** 0 ≤ n < 1; spreads retries. */
  readonly random: () => number;
  /** After it aborts, no key is started. */
  readonly signal: AbortSignal;
  /** Called for each rejection, before the key is added again. `attempt` counts from 1. */
  readonly onError?: (key: string, error: unknown, attempt: number) => void;
  /** First delay after a rejection; it doubles with each further one. Default 5 ms. */
  readonly firstBackoffMs?: number;
  /** Longest delay. Default 30 s. */
  readonly maxBackoffMs?: number;
}

/**
 * A queue of keys to process. A key that is added several times while it waits is processed once; a key
 * that is added while it is processed is processed once more afterwards, never concurrently.
 */
export interface WorkQueue {
  add(key: string): void;
  /** Adds the key after `ms`; of several delays for a key the shortest applies. */
  addAfter(key: string, ms: number): void;
  /** Number of keys that wait or are processed, without delayed ones. */
  readonly size: number;
  /** Resolves when no key waits or is processed; after an abort, when the last one has finished. */
  idle(): Promise<void>;
}

export function createWorkQueue(options: WorkQueueOptions): WorkQueue {
  const { clock, random, signal, concurrency = 16 } = options;
  const { firstBackoffMs = 5, maxBackoffMs = 30_000 } = options;
  const waiting = new Set<string>();
  const active = new Set<string>();
  /** Keys added again while being processed. */
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
  // Deferred to a later turn of the event loop: the rest of a burst of events is added before the work
  // begins.
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
