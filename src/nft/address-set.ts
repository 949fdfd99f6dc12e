import type { TableFamily } from '../kernel/nftables/constants.ts';
import { addressWords, writeAddress } from './encoding.ts';
import { type AddressSet, type ElementGroup, type Elements, elements, group } from './spec.ts';

/** Returns the group of every owner whose name is the set's prefix and an address: that address in the set. */
export const addressGroup = (addressSet: AddressSet): ElementGroup => ({ ...group([]), addressSet });

/** An IPv6 address twice. */
export const MAX_KEY_WORDS = 8;

/**
 * Returns the elements of an owner's group; none if the owner's name should be an address and is other text. `words`, from
 * `at` on, has room for a key.
 */
export function elementsOf(
  owner: string,
  one: ElementGroup,
  family: TableFamily,
  words: Uint32Array = new Uint32Array(MAX_KEY_WORDS),
  at = 0,
): readonly Elements[] {
  const { addressSet } = one;
  if (!addressSet) return one.elements;
  return writeOwnerAddress(owner, addressSet, family, words, at)
    ? [elements(addressSet.set, words, { at })]
    : [];
}

/** Writes the key of an owner's element of an address set. Returns false if the owner's name has no address of the family. */
export function writeOwnerAddress(
  owner: string,
  { times, prefix }: AddressSet,
  family: TableFamily,
  words: Uint32Array,
  at: number,
): boolean {
  // Invariant: address sets belong to tables of IP packets.
  if (family === 'netdev') return false;
  const width = addressWords(family);
  try {
    writeAddress(owner, family, words, at, prefix.length);
    // A loop: copyWithin() takes longer for so few words.
    for (let i = at; i < at + (times - 1) * width; i++) words[i + width] = words[i] ?? 0;
    return true;
  } catch {
    return false;
  }
}
