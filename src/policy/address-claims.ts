/** The pods that claim each address; the latest one has it. */
export interface AddressClaims {
  /** Returns the key of the pod that has an address; null: none claims it. */
  ownerOf(address: string): string | null;
  /** Sets the addresses that a pod claims: those of `next` instead of those of `before`. */
  replace(key: string, before: readonly string[], next: readonly string[]): void;
}

/** `changed`: called with each other pod that gains or loses an address, or may. */
export function createAddressClaims(changed: (key: string) => void): AddressClaims {
  const claims = new Map<string, string[]>();
  const othersOf = (address: string, key: string): string[] => {
    const others = (claims.get(address) ?? []).filter((other) => other !== key);
    for (const other of others) changed(other);
    return others;
  };
  return {
    ownerOf: (address) => claims.get(address)?.at(-1) ?? null,
    replace(key, before, next) {
      for (const address of before.filter((one) => !next.includes(one))) {
        const others = othersOf(address, key);
        if (others.length > 0) claims.set(address, others);
        else claims.delete(address);
      }
      for (const address of next.filter((one) => !before.includes(one)))
        claims.set(address, [...othersOf(address, key), key]);
    },
  };
}
