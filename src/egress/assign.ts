import { createHash } from 'node:crypto';
import { familyOf, type IPFamily } from '../lib/address.ts';

/**
 * Returns the address with which a pod leaves: of several, always the same, also on another node and after it was created
 * again. When addresses are added or removed, only the pods that get or had one of these change (rendezvous hashing).
 */
export function addressFor(pod: string, addresses: readonly string[], family: IPFamily): string | null {
  let best: string | null = null;
  let highest = -1;
  const own = addresses.filter((one) => familyOf(one) === family);
  if (own.length < 2) return own[0] ?? null;
  for (const address of own) {
    const score = createHash('sha256').update(`${address} ${pod}`).digest().readUIntBE(0, 6);
    if (score > highest) [best, highest] = [address, score];
  }
  return best;
}
