import type { Cidr, IPFamily } from '../lib/address.ts';

/** A range of addresses from `first` to `last`, both included. */
export interface AddressRange {
  readonly first: Uint8Array;
  readonly last: Uint8Array;
}

/** Returns the networks of a family as sorted ranges that do not touch or overlap. */
export const mergedRanges = (cidrs: Iterable<Cidr>, family: IPFamily): AddressRange[] =>
  mergeRanges([...cidrs].filter((cidr) => cidr.family === family).map(rangeOf));

/** Merges ranges of one family that touch or overlap; returns them sorted. */
export function mergeRanges(ranges: readonly AddressRange[]): AddressRange[] {
  const merged: AddressRange[] = [];
  for (const range of ranges.toSorted((a, b) => Buffer.compare(a.first, b.first))) {
    const previous = merged.at(-1);
    const next = previous && successor(previous.last);
    if (previous && (next === null || Buffer.compare(range.first, next ?? range.first) <= 0)) {
      if (Buffer.compare(range.last, previous.last) > 0) {
        merged[merged.length - 1] = { first: previous.first, last: range.last };
      }
    } else merged.push(range);
  }
  return merged;
}

/** Returns the networks that are not part of another one, without duplicates. */
export function outermost(cidrs: Iterable<Cidr>, family: IPFamily): AddressRange[] {
  const ranges = [...cidrs].filter((cidr) => cidr.family === family).map(rangeOf);
  ranges.sort((a, b) => Buffer.compare(a.first, b.first) || Buffer.compare(b.last, a.last));
  const kept: AddressRange[] = [];
  for (const range of ranges) {
    const previous = kept.at(-1);
    if (!previous || Buffer.compare(range.first, previous.last) > 0) kept.push(range);
  }
  return kept;
}

/** Returns the range of a network's addresses. */
export function rangeOf(cidr: Cidr): AddressRange {
  const first = new Uint8Array(cidr.bytes.length);
  const last = new Uint8Array(cidr.bytes.length);
  const mask = maskOf(cidr);
  for (let i = 0; i < first.length; i++) {
    first[i] = (cidr.bytes[i] ?? 0) & (mask[i] ?? 0);
    last[i] = (cidr.bytes[i] ?? 0) | (~(mask[i] ?? 0) & 0xff);
  }
  return { first, last };
}

export function maskOf(cidr: Cidr): Uint8Array {
  return Uint8Array.from(cidr.bytes, (_, i) => {
    const bits = Math.min(8, Math.max(0, cidr.prefix - i * 8));
    return (0xff << (8 - bits)) & 0xff;
  });
}

/** Returns the next address, or null after the last one. */
export function successor(address: Uint8Array): Uint8Array | null {
  const next = address.slice();
  for (let i = next.length - 1; i >= 0; i--) {
    const value = ((next[i] ?? 0) + 1) & 0xff;
    next[i] = value;
    if (value !== 0) return next;
  }
  return null;
}
