import type { Clock } from '../../lib/clock.ts';

/** Consecutive slots: elements of the map `endpoints`. */
export interface Run {
  readonly first: number;
  /** A power of two. */
  readonly size: number;
}

/** No program reads a run longer than this after its route was replaced. */
const QUARANTINE_MS = 100;

/**
 * Allocates runs of slots, whose sizes are powers of two. A released run is reused only after a delay, so that a program
 * that has just read a route still finds that route's endpoints.
 */
export class SlotAllocator {
  readonly #clock: Clock;
  /** Free runs by the logarithm of their size. */
  readonly #free: number[][] = Array.from({ length: 32 }, () => []);
  #released: { run: Run; at: number }[] = [];

  constructor(capacity: number, clock: Clock) {
    this.#clock = clock;
    // The largest powers of two, from the front.
    for (let first = 0; first < capacity; ) {
      const log = 31 - Math.clz32(capacity - first);
      this.#free[log]?.push(first);
      first += 2 ** log;
    }
  }

  /** Returns the number of slots that a run for `count` endpoints takes. */
  static sizeOf(count: number): number {
    return count <= 1 ? 1 : 2 ** (32 - Math.clz32(count - 1));
  }

  /** Returns a run of at least `count` slots, or null if none is free. */
  allocate(count: number): Run | null {
    this.#collect();
    const size = SlotAllocator.sizeOf(count);
    const wanted = Math.log2(size);
    for (let log = wanted; log < 32; log++) {
      const first = this.#free[log]?.pop();
      if (first === undefined) continue;
      // The upper halves stay free.
      for (let half = log - 1; half >= wanted; half--) this.#free[half]?.push(first + 2 ** half);
      return { first, size };
    }
    return null;
  }

  /** Allocates exactly this run. Returns false if part of it is in use. */
  reserve(run: Run): boolean {
    const log = Math.log2(run.size);
    for (let at = log; at < 32; at++) {
      const first = run.first - (run.first % 2 ** at);
      const list = this.#free[at];
      const index = list?.indexOf(first) ?? -1;
      if (!list || index < 0) continue;
      list.splice(index, 1);
      for (let half = at - 1, base = first; half >= log; half--) {
        const middle = base + 2 ** half;
        if (run.first >= middle) {
          this.#free[half]?.push(base);
          base = middle;
        } else this.#free[half]?.push(middle);
      }
      return true;
    }
    return false;
  }

  release(run: Run): void {
    this.#released.push({ run, at: this.#clock.now() });
  }

  #collect(): void {
    const until = this.#clock.now() - QUARANTINE_MS;
    let count = 0;
    for (const { run, at } of this.#released) {
      // Also released if the clock was set back.
      if (at > until && at <= this.#clock.now()) break;
      this.#free[Math.log2(run.size)]?.push(run.first);
      count++;
    }
    if (count > 0) this.#released = this.#released.slice(count);
  }
}
