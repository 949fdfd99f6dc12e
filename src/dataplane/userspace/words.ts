import { addressBytes, type Cidr, type IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Protocol } from '../../service/model.ts';

/** Numbers as they stand in nf_tables registers: 32-bit words holding network order, on a little-endian host. */

export const PROTOCOL_NUMBER: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };

/** Words of an address: 1 or 4. */
export const addressWords = (family: IPFamily): 1 | 4 => (family === 'ipv4' ? 1 : 4);

/** An address's words. Throws when the text is no address of the family. */
export function wordsOfAddress(text: string, family: IPFamily): number[] {
  const bytes = addressBytes(text);
  if (bytes?.length === addressWords(family) * 4) return wordsOf(bytes);
  throw new FairleadError(`${JSON.stringify(text)} is no ${family === 'ipv4' ? 'IPv4' : 'IPv6'} address`, {
    op: 'encode nf_tables element',
    code: 'EINVAL',
    object: text,
  });
}

export function wordsOf(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: bytes.length / 4 }, (_, i) => view.getUint32(i * 4, true));
}

/** A port as it stands in a register: its two bytes first. */
export const portWord = (port: number): number => ((port & 0xff) << 8) | (port >> 8);

/** Words as the hexadecimal text of their bytes. */
export const hexOfWords = (words: ArrayLike<number>): string =>
  Buffer.from(Uint32Array.from(words).buffer).toString('hex');

/** A range of addresses, both ends belonging to it. */
export interface AddressRange {
  readonly first: Uint8Array;
  readonly last: Uint8Array;
}

/** The networks of a family that lie in no other one of them; equal ones once. In order. */
export function outermost(cidrs: Iterable<Cidr>, family: IPFamily): AddressRange[] {
  const ranges = [...cidrs].filter((cidr) => cidr.family === family).map(rangeOf);
  ranges.sort((a, b) => Buffer.compare(a.first, b.first) || Buffer.compare(b.last, a.last));
  const kept: AddressRange[] = [];
  for (const range of ranges) {
    const before = kept.at(-1);
    if (!before || Buffer.compare(range.first, before.last) > 0) kept.push(range);
  }
  return kept;
}

/** The networks of a family as ranges that neither touch nor overlap: the kernel refuses neighbours that do. */
export function mergedRanges(cidrs: Iterable<Cidr>, family: IPFamily): AddressRange[] {
  const merged: AddressRange[] = [];
  for (const range of outermost(cidrs, family)) {
    const before = merged.at(-1);
    const next = before && successor(before.last);
    if (before && next && Buffer.compare(range.first, next) === 0) {
      merged[merged.length - 1] = { first: before.first, last: range.last };
    } else merged.push(range);
  }
  return merged;
}

/** The next address, or null after the last one. */
export function successor(address: Uint8Array): Uint8Array | null {
  const next = address.slice();
  for (let i = next.length - 1; i >= 0; i--) {
    const value = ((next[i] ?? 0) + 1) & 0xff;
    next[i] = value;
    if (value !== 0) return next;
  }
  return null;
}

export function maskOf(cidr: Cidr): Uint8Array {
  return Uint8Array.from(cidr.bytes, (_, i) => {
    const bits = Math.min(8, Math.max(0, cidr.prefix - i * 8));
    return (0xff << (8 - bits)) & 0xff;
  });
}

function rangeOf(cidr: Cidr): AddressRange {
  const mask = maskOf(cidr);
  return {
    first: cidr.bytes.map((byte, i) => byte & (mask[i] ?? 0)),
    last: cidr.bytes.map((byte, i) => byte | (~(mask[i] ?? 0) & 0xff)),
  };
}
