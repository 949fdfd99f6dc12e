import type { Clock } from '../lib/clock.ts';

/** The longest delay of a timer of Node.js; a grace period may be longer. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** The end of a pod's grace period, which a later deletion can only make earlier. */
export class GracePeriod {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #endsAt = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Its end in the clock's milliseconds; infinite while the pod is not being deleted. */
  get endsAt(): number {
    return this.#endsAt;
  }

  /** Ends it in `ms` milliseconds, unless it ends before. */
  shorten(ms: number): void {
    const endsAt = this.#clock.now() + ms;
    if (endsAt >= this.#endsAt) return;
    this.#endsAt = endsAt;
    for (const reset of this.#waiting) reset();
  }

  /** Calls `run` once at its end, or at `limit` if that is earlier. The result cancels it. */
  after(limit: number, run: () => void): () => void {
    let cancelTimer = () => {};
    const cancel = () => {
      cancelTimer();
      this.#waiting.delete(reset);
    };
    const reset = () => {
      cancelTimer();
      const ms = Math.max(0, Math.min(limit, this.#endsAt) - this.#clock.now());
      cancelTimer = this.#clock.after(Math.min(ms, MAX_TIMER_MS), () => {
        if (ms > MAX_TIMER_MS) return reset();
        cancel();
        run();
      });
    };
    this.#waiting.add(reset);
    reset();
    return cancel;
  }
}
