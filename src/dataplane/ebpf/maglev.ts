import type { Endpoint } from '../../service/model.ts';
import { endpointPlace } from '../../service/pools.ts';

const SIZES = [251, 1021, 4093, 16381] as const;
/** Minimum number of entries per endpoint, for shares that differ by about 1 %. */
const MIN_SHARE = 100;

/** Returns the number of entries for so many endpoints. */
export const maglevSize = (endpoints: number): number =>
  SIZES.find((places) => places >= endpoints * MIN_SHARE) ?? 16381;

/**
 * Computes a lookup table of consistent hashing (Eisenbud et al., "Maglev", NSDI 2016, section 3.4): endpoints take the
 * next free entry of their own permutation in turn. A change of one endpoint moves few entries of the others.
 */
export function maglevTable(endpoints: readonly Endpoint[]): Endpoint[] {
  if (endpoints.length === 0) return [];
  const size = maglevSize(endpoints.length);
  const walks = endpoints.map((endpoint) => {
    const name = endpointPlace(endpoint);
    return { at: hash(name, 0x811c9dc5) % size, step: (hash(name, 0x01000193) % (size - 1)) + 1 };
  });
  const table = new Array<Endpoint | undefined>(size);
  for (let filled = 0; filled < size; ) {
    for (const [i, walk] of walks.entries()) {
      while (table[walk.at] !== undefined) walk.at = (walk.at + walk.step) % size;
      table[walk.at] = endpoints[i];
      if (++filled === size) break;
    }
  }
  return table as Endpoint[];
}

/** FNV-1a with a finish that spreads short names. */
function hash(text: string, seed: number): number {
  let value = seed;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}
