import { refill, type TokenBucket } from '../lib/token-bucket.ts';

/** The share of one client's address in a name server that many pods use. */
export interface ShareLimits {
  /** Queries a second, over longer times. */
  readonly perSecond: number;
  /** Queries at once, above which `perSecond` applies: also those that waited while the process did other work. */
  readonly burst: number;
  /** Queries that wait for an upstream. */
  readonly maxWaiting: number;
  /** Addresses that are remembered; the one that has been silent for longest is forgotten first. */
  readonly maxSources: number;
}

/** Room for a program that resolves 5,000 names a second; a tenth of a second of the server's time for each second. */
export const DEFAULT_SHARE: ShareLimits = {
  perSecond: 6000,
  burst: 1000,
  maxWaiting: 300,
  maxSources: 4096,
};

export interface SourceShare {
  /** Returns false if the query is to be dropped, and counts it. `source`: the client's address, as any key. */
  admit(source: string | number): boolean;
  /** The same for a query that can wait: nothing is counted. */
  take(source: string | number): boolean;
  /** Counts an answer as that many more queries: a large one over TCP takes the time of many. */
  charge(source: string | number, queries: number): void;
  /** Records that a query waits for an upstream, or no longer does. */
  wait(source: string | number, change: 1 | -1): void;
}

interface Bucket extends TokenBucket {
  waiting: number;
}

/**
 * Bounds the queries of each source (a token bucket each). A dropped query costs a microsecond, an answered one twenty or
 * more: so the flood of one pod takes its own share of the server only. `now`: milliseconds; `onDrop` is called for each
 * dropped query.
 */
export function createSourceShare(
  limits: ShareLimits,
  now: () => number,
  onDrop: (source: string | number) => void,
): SourceShare {
  const buckets = new Map<string | number, Bucket>();
  const bucketOf = (source: string | number): Bucket => {
    const known = buckets.get(source);
    if (known) return known;
    if (buckets.size >= limits.maxSources) forgetSilent();
    const made = { tokens: limits.burst, at: now(), waiting: 0 };
    buckets.set(source, made);
    return made;
  };
  const forgetSilent = () => {
    let silent: string | number | null = null;
    let since = Number.POSITIVE_INFINITY;
    let looked = 0;
    for (const [source, { at }] of buckets) {
      if (at < since) [silent, since] = [source, at];
      // The order is that of first queries: among the first are long silent ones.
      if (++looked === 16) break;
    }
    if (silent !== null) buckets.delete(silent);
  };
  const take = (source: string | number): boolean => {
    const bucket = bucketOf(source);
    refill(bucket, limits, now());
    if (bucket.tokens < 1 || bucket.waiting >= limits.maxWaiting) return false;
    bucket.tokens--;
    return true;
  };
  return {
    take,
    admit(source) {
      if (take(source)) return true;
      onDrop(source);
      return false;
    },
    charge(source, queries) {
      const bucket = buckets.get(source);
      if (bucket) bucket.tokens = Math.max(-limits.burst, bucket.tokens - queries);
    },
    wait(source, change) {
      const bucket = buckets.get(source);
      if (bucket) bucket.waiting = Math.max(0, bucket.waiting + change);
    },
  };
}
