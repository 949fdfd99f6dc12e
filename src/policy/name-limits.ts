/** How long an answer allows its addresses at least: clients use them somewhat later, and answers may have a TTL of 0. */
export const MIN_LIFETIME_MS = 30_000;
/** And at most; the TTL of a longer answer is lowered to it, so that no client keeps an address that is no longer allowed. */
export const MAX_LIFETIME_MS = 3_600_000;
/** A client counts the TTL from when the answer arrives. */
const GRACE_MS = 1000;
/** The kernel gets addresses of answers with short TTLs again after this, not at each answer. */
const SLACK_MS = 8000;

/** Addresses of one name, as of one pod. */
export const MAX_ADDRESSES_OF_NAME = 1000;
/** Names of one pod with addresses that are allowed now. */
export const MAX_NAMES_OF_POD = 1000;
/** Addresses of one pod; one that is allowed by two lists of names counts twice. */
export const MAX_ADDRESSES_OF_POD = 2000;
/** Addresses of all pods of a node: what 128 pods may have. The kernel's sets are as large. */
export const MAX_ADDRESSES_OF_NODE = 1 << 18;

/**
 * The times that the kernel gives an address, in milliseconds: rules have constant timeouts. Each is a quarter longer than the
 * one before, so that an address is allowed at most a third longer than its answer says.
 */
export const LIFETIMES: readonly number[] = (() => {
  const steps = [MIN_LIFETIME_MS + GRACE_MS + SLACK_MS];
  for (let last = steps[0] ?? 0; last < MAX_LIFETIME_MS + GRACE_MS; steps.push(last))
    last = Math.min(Math.ceil((last * 1.25) / 1000) * 1000, MAX_LIFETIME_MS + GRACE_MS);
  return steps;
})();

/** Returns how long the addresses of an answer have to be allowed. `ttl`: in seconds. */
export const neededMs = (ttl: number): number =>
  Math.min(MAX_LIFETIME_MS, Math.max(MIN_LIFETIME_MS, ttl * 1000));

/** Returns for how long the kernel allows an address that is needed for so long. */
export const givenMs = (needed: number): number => LIFETIMES[lifetimeIndex(needed + GRACE_MS)] ?? 0;

/** Returns the index of the shortest lifetime that suffices. */
export function lifetimeIndex(neededMs: number): number {
  const found = LIFETIMES.findIndex((one) => one >= neededMs);
  return found < 0 ? LIFETIMES.length - 1 : found;
}
