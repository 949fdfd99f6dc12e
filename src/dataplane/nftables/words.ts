import { addressBytes, type Cidr, type IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Protocol } from '../../service/model.ts';

/** Numbers as they stand in nf_tables registers: 32-bit words holding network order, on a little-endian host. */

export const PROTOCOL_NUMBER: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };

/** Words of an address: 1 or 4. */
export const addressWords = (family: IPFamily): 1 | 4 => (family === 'ipv4' ? 1 : 4);

/** Writes an address's words into `out` at `at`. Throws when it is no address of the family. */
export function writeAddress(text: string, family: IPFamily, out: Uint32Array, at: number): void {
  if (family === 'ipv4') {
    const word = ipv4Word(text);
    if (word === null) throw badAddress(text, family);
    out[at] = word;
    return;
  }
  const bytes = addressBytes(text);
  if (bytes?.length !== 16) throw badAddress(text, family);
  for (let i = 0; i < 4; i++) out[at + i] = wordOf(bytes, i * 4);
}

export function wordOf(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] ?? 0) |
      ((bytes[at + 1] ?? 0) << 8) |
      ((bytes[at + 2] ?? 0) << 16) |
      ((bytes[at + 3] ?? 0) << 24)) >>>
    0
  );
}

/** Words as bytes. */
export function bytesOf(words: ArrayLike<number>): Uint8Array {
  return new Uint8Array(Uint32Array.from(words).buffer);
}

export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** A hundred thousand addresses are read at a cold start: hence without splitting text. */
function ipv4Word(text: string): number | null {
  let word = 0;
  let part = 0;
  let digits = 0;
  let shift = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 46) {
      if (digits === 0 || shift === 24) return null;
      word |= part << shift;
      shift += 8;
      part = 0;
      digits = 0;
    } else if (code >= 48 && code <= 57) {
      part = part * 10 + code - 48;
      digits++;
      if (part > 255) return null;
    } else return null;
  }
  if (digits === 0 || shift !== 24) return null;
  return (word | (part << 24)) >>> 0;
}

function badAddress(text: string, family: IPFamily): FairleadError {
  return new FairleadError(`${JSON.stringify(text)} is no ${family === 'ipv4' ? 'IPv4' : 'IPv6'} address`, {
    op: 'encode nf_tables element',
    code: 'EINVAL',
    object: text,
  });
}

/** A range of addresses, both ends belonging to it. */
export interface AddressRange {
  readonly first: Uint8Array;
  readonly last: Uint8Array;
}

/** The networks of a family as ranges that neither touch nor overlap, in order. */
export function mergedRanges(cidrs: Iterable<Cidr>, family: IPFamily): AddressRange[] {
  const ranges = [...cidrs].filter((cidr) => cidr.family === family).map(rangeOf);
  ranges.sort((a, b) => Buffer.compare(a.first, b.first));
  const merged: AddressRange[] = [];
  for (const range of ranges) {
    const before = merged.at(-1);
    const next = before && successor(before.last);
    if (before && (next === null || Buffer.compare(range.first, next ?? range.first) <= 0)) {
      if (Buffer.compare(range.last, before.last) > 0) {
        merged[merged.length - 1] = { first: before.first, last: range.last };
      }
    } else merged.push(range);
  }
  return merged;
}

/** The networks that lie in no other one of them; equal ones once. */
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

function rangeOf(cidr: Cidr): AddressRange {
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

export const wordsOf = (bytes: Uint8Array): number[] =>
  Array.from({ length: bytes.length / 4 }, (_, i) => wordOf(bytes, i * 4));

/** A port as it stands in a register: its two bytes first. */
export const be16Port = (port: number): number => ((port & 0xff) << 8) | (port >> 8);
