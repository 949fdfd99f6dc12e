import { addressBytes, type IPFamily, parseCidr } from '../lib/address.ts';
import { type AddressRange, mergeRanges, rangeOf, successor } from '../nft/ranges.ts';
import type { AddressBlock } from './model.ts';

/**
 * Reads an ipBlock; returns null if the network is malformed. Exceptions of the other family, or malformed
 * ones, are left out.
 */
export function readAddressBlock(cidr: string, except: readonly string[]): AddressBlock | null {
  const network = parseCidr(cidr);
  if (!network) return null;
  const holes = except
    .flatMap((text) => parseCidr(text) ?? [])
    .filter(({ family }) => family === network.family)
    .map(rangeOf);
  const text = except.length > 0 ? `${cidr} except ${except.join(', ')}` : cidr;
  return { family: network.family, ranges: without(rangeOf(network), mergeRanges(holes)), text };
}

export function blockContains({ ranges }: AddressBlock, address: string): boolean {
  const bytes = addressBytes(address);
  return bytes !== null && ranges.some((range) => rangeHas(range, bytes));
}

/** Returns the merged ranges of several blocks that belong to a family. */
export const blockRanges = (blocks: readonly AddressBlock[], family: IPFamily): AddressRange[] =>
  mergeRanges(blocks.flatMap((block) => (block.family === family ? block.ranges : [])));

const rangeHas = ({ first, last }: AddressRange, bytes: Uint8Array): boolean =>
  bytes.length === first.length && Buffer.compare(first, bytes) <= 0 && Buffer.compare(bytes, last) <= 0;

/** Returns the rest of a range without holes, which are sorted and not adjacent. */
function without(range: AddressRange, holes: readonly AddressRange[]): AddressRange[] {
  const left: AddressRange[] = [];
  let from: Uint8Array | null = range.first;
  for (const hole of holes) {
    if (from === null || Buffer.compare(hole.first, range.last) > 0) break;
    if (Buffer.compare(hole.last, from) < 0) continue;
    if (Buffer.compare(hole.first, from) > 0) left.push({ first: from, last: predecessor(hole.first) });
    from = successor(hole.last);
  }
  if (from !== null && Buffer.compare(from, range.last) <= 0) left.push({ first: from, last: range.last });
  return left;
}

function predecessor(address: Uint8Array): Uint8Array {
  const previous = address.slice();
  for (let i = previous.length - 1; i >= 0; i--) {
    const value = ((previous[i] ?? 0) + 255) & 0xff;
    previous[i] = value;
    if (value !== 255) return previous;
  }
  return previous;
}
