import type { Pod } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';

const FIRST_MS = 10_000;
const MAX_MS = 300_000;
/** A run of this length resets the back-off. */
const RESET_MS = 600_000;
const FIRST_REFUSAL_MS = 1000;

/** Delays restarts of a container, longer after each end (like upstream's kubelet). */
export class RestartBackoff {
  readonly #clock: Clock;
  readonly #wake: () => void;
  /** Consecutive short runs. */
  #failures = 0;
  #refusals = 0;
  #notBefore = 0;
  #cancel = () => {};

  /** `wake`: called when the delay is over. */
  constructor(clock: Clock, wake: () => void) {
    this.#clock = clock;
    this.#wake = wake;
  }

  /**
   * Records the end of a run with its duration in milliseconds and returns the delay: 0 at first, then 10 s, 20 s, … 5 min;
   * a long run resets the back-off.
   */
  ended(ranMs: number): number {
    this.#failures = ranMs > RESET_MS ? 0 : this.#failures + 1;
    const delay = this.#failures <= 1 ? 0 : Math.min(FIRST_MS * 2 ** (this.#failures - 2), MAX_MS);
    this.#notBefore = this.#clock.now() + delay;
    return delay;
  }

  /** Resets the back-off: the run was stopped to restart with a changed definition. */
  forget(): void {
    this.#failures = 0;
  }

  /** Records a failed start, and schedules `wake` for the next attempt. Returns the number of consecutive failures. */
  refused(): number {
    this.#refusals++;
    this.#notBefore = this.#clock.now() + Math.min(FIRST_REFUSAL_MS * 2 ** (this.#refusals - 1), MAX_MS);
    this.#wait();
    return this.#refusals;
  }

  started(): void {
    this.#refusals = 0;
  }

  /** Reports whether it is too early to start; `wake` is called later. */
  isEarly(): boolean {
    if (this.#clock.now() >= this.#notBefore) return false;
    this.#wait();
    return true;
  }

  /** Ends the delay early. */
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

/** Returns the status reason and the event's text of a delayed restart; the reason is empty without a delay (ms). */
export function backOffMessages(
  delay: number,
  container: string,
  { metadata }: Pod,
): { readonly reason: string; readonly event: string } {
  const { name, namespace, uid } = metadata ?? {};
  const pod = `${name}_${namespace}(${uid})`;
  return {
    reason:
      delay === 0 ? '' : `back-off ${delay / 1000}s restarting failed container=${container} pod=${pod}`,
    event: `Back-off restarting failed container ${container} in pod ${pod}`,
  };
}
