import type { Change } from './model.ts';

/** Counts the frontends that need each hairpin address. */
export interface HairpinUses {
  readonly addresses: ReadonlySet<string>;
  count(address: string, by: 1 | -1): void;
  /** Returns the addresses that came and went since the last call. */
  takeChanges(): Change['hairpinAddresses'];
}

export function createHairpinUses(): HairpinUses {
  const uses = new Map<string, number>();
  const addresses = new Set<string>();
  /** Whether an address was in use at the last call. */
  const before = new Map<string, boolean>();
  return {
    addresses,
    count(address, by) {
      const now = (uses.get(address) ?? 0) + by;
      if (!before.has(address)) before.set(address, addresses.has(address));
      if (now > 0) uses.set(address, now);
      else uses.delete(address);
      if (now > 0) addresses.add(address);
      else addresses.delete(address);
    },
    takeChanges() {
      const added = [...before].flatMap(([a, was]) => (!was && addresses.has(a) ? [a] : []));
      const removed = [...before].flatMap(([a, was]) => (was && !addresses.has(a) ? [a] : []));
      before.clear();
      return { added, removed };
    },
  };
}
