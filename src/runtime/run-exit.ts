import type { Clock } from '../lib/clock.ts';

/** The end of one run of a container, for its waiters. */
export class RunExit {
  readonly #clock: Clock;
  readonly #look: () => boolean;
  readonly #ended = Promise.withResolvers<null>();

  /** `look`: checks whether the container still runs; may detect its end. */
  constructor(clock: Clock, look: () => boolean) {
    this.#clock = clock;
    this.#look = look;
  }

  /** Records the run's end. */
  settle(): void {
    this.#ended.resolve(null);
  }

  /** Resolves to the result of the work; null: the run ended or the time expired before. */
  async during<T>(work: Promise<T>, ms: number): Promise<T | null> {
    let cancel = () => {};
    const late = new Promise<null>((resolve) => {
      cancel = this.#clock.after(ms, () => resolve(null));
    });
    try {
      return await Promise.race([work, late, this.#ended.promise]);
    } finally {
      cancel();
    }
  }

  /**
   * Resolves at the run's end, or after the time. `deadline` (the clock's milliseconds) may become earlier in the
   * meantime.
   */
  async within(ms: number, deadline: () => number): Promise<void> {
    const until = this.#clock.now() + ms;
    while (this.#look()) {
      const left = Math.min(until, Math.max(deadline(), 0)) - this.#clock.now();
      if (left <= 0) return;
      await this.#pause(Math.min(left, 250));
    }
  }

  /** Resolves at the run's end, which must be imminent. */
  async seen(): Promise<void> {
    while (this.#look()) await this.#pause(20);
  }

  async #pause(ms: number): Promise<void> {
    await this.during(new Promise<never>(() => {}), ms);
  }
}
