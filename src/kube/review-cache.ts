import { createHash } from 'node:crypto';
import type { Clock } from '../lib/clock.ts';

export interface ReviewCacheOptions {
  readonly clock: Clock;
  /** The results that are remembered; the oldest are forgotten first. */
  readonly maxKnown: number;
  /** Reviews at the same time: anybody who reaches a port can send tokens. */
  readonly maxPending: number;
  /** Returns the error of a review that would be one too many. */
  readonly tooMany: () => Error;
}

/** Remembers what the API server said of tokens and users. */
export interface ReviewCache {
  /**
   * Returns the remembered result for a key, or makes the review; equal ones at the same time are made once. `msOf`: for how
   * long a result is remembered. A review that fails says nothing, and is not remembered. The key may contain a token:
   * only its hash is kept.
   */
  remember<T>(key: string, review: () => Promise<T>, msOf: (result: T) => number): Promise<T>;
}

export function createReviewCache({ clock, maxKnown, maxPending, tooMany }: ReviewCacheOptions): ReviewCache {
  const known = new Map<string, { readonly until: number; readonly result: Promise<unknown> }>();
  let pending = 0;
  return {
    async remember<T>(key: string, review: () => Promise<T>, msOf: (result: T) => number): Promise<T> {
      const hash = createHash('sha256').update(key).digest('base64');
      const found = known.get(hash);
      // A key stands for one kind of review.
      if (found && found.until > clock.now()) return (await found.result) as T;
      if (pending >= maxPending) throw tooMany();
      pending++;
      const result = review();
      const entry = { until: Number.POSITIVE_INFINITY, result };
      known.delete(hash);
      known.set(hash, entry);
      for (const oldest of known.keys()) {
        if (known.size <= maxKnown) break;
        known.delete(oldest);
      }
      try {
        const value = await result;
        if (known.get(hash) === entry) known.set(hash, { until: clock.now() + msOf(value), result });
        return value;
      } catch (error) {
        if (known.get(hash) === entry) known.delete(hash);
        throw error;
      } finally {
        pending--;
      }
    },
  };
}
