import type { Clock } from '../lib/clock.ts';

/** The end of one run of a container, for its waiters. */
export class RunExit {
  readonly #clock: Clock;
  readonly #isRunning: () => boolean;
  readonly #ended = Promise.withResolvers<null>();

  /** `isRunning`: checks whether the container still runs; may detect its end. */
  constructor(clock: Clock, isRunning: () => boolean) {
    this.#clock = clock;
    this.#isRunning = isRunning;
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

  /** Resolves at the run's end, or at the time (the clock's milliseconds), which may become earlier in the meantime. */
  async until(time: () => number): Promise<void> {
    while (this.#isRunning()) {
      const left = time() - this.#clock.now();
      if (left <= 0) return;
      await this.#pause(Math.min(left, 250));
    }
  }

  /** Resolves at the run's end, which must be imminent. */
  async detected(): Promise<void> {
    while (this.#isRunning()) await this.#pause(20);
  }

  async #pause(ms: number): Promise<void> {
    await this.during(new Promise<never>(() => {}), ms);
  }
}
