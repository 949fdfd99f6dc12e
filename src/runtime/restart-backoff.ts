import type { Clock } from '../lib/clock.ts';

const FIRST_MS = 10_000;
const MAX_MS = 300_000;
/** A container that ran this long has earned a fresh start. */
const RESET_MS = 600_000;
const FIRST_REFUSAL_MS = 1000;

/** When a container may be started again: the more often it has ended, the later (as upstream's kubelet). */
export class RestartBackoff {
  readonly #clock: Clock;
  readonly #wake: () => void;
  /** Of short runs, in a row. */
  #failures = 0;
  #refusals = 0;
  #notBefore = 0;
  #cancel = () => {};

  /** `wake`: the time that was waited for has come. */
  constructor(clock: Clock, wake: () => void) {
    this.#clock = clock;
    this.#wake = wake;
  }

  /**
   * Notes the end of a run of so many milliseconds and returns how long to wait: nothing at first, then 10 s, 20 s, … 5 min; a
   * long run resets the back-off.
   */
  ended(ranMs: number): number {
    this.#failures = ranMs > RESET_MS ? 0 : this.#failures + 1;
    const delay = this.#failures <= 1 ? 0 : Math.min(FIRST_MS * 2 ** (this.#failures - 2), MAX_MS);
    this.#notBefore = this.#clock.now() + delay;
    return delay;
  }

  /** Forgets earlier failures: the run was ended to restart with a changed definition. */
  forget(): void {
    this.#failures = 0;
  }

  /** Notes a failed start, and plans `wake` for the next try. Returns how often in a row. */
  refused(): number {
    this.#refusals++;
    this.#notBefore = this.#clock.now() + Math.min(FIRST_REFUSAL_MS * 2 ** (this.#refusals - 1), MAX_MS);
    this.#wait();
    return this.#refusals;
  }

  started(): void {
    this.#refusals = 0;
  }

  /** It is too early; `wake` comes when it no longer is. */
  isEarly(): boolean {
    if (this.#clock.now() >= this.#notBefore) return false;
    this.#wait();
    return true;
  }

  /** What was waited for has come sooner. */
  skip(): void {
    this.#notBefore = 0;
  }

  cancel(): void {
    this.#cancel();
  }

  #wait(): void {
    this.#cancel();
    this.#cancel = this.#clock.after(Math.max(0, this.#notBefore - this.#clock.now()), this.#wake);
  }
}
