/** How often something may happen: `perSecond` over longer times, `burst` at once. */
export interface Rate {
  readonly perSecond: number;
  readonly burst: number;
}

/** The tokens that one client has left; full, the bucket has `burst`. */
export interface TokenBucket {
  tokens: number;
  /** The time of the last refill, in milliseconds. */
  at: number;
}

/** Adds the tokens of the time since the last refill; none if the clock was set back. */
export function refill(bucket: TokenBucket, { perSecond, burst }: Rate, now: number): void {
  const gained = (Math.max(0, now - bucket.at) * perSecond) / 1000;
  bucket.tokens = Math.min(burst, bucket.tokens + gained);
  bucket.at = now;
}
