import { addressBytes, type Cidr, formatAddress, type IPFamily, parseCidr } from './address.ts';

/** Addresses from `first` to `last`, both included, as numbers. */
export interface AddressRange {
  readonly family: IPFamily;
  readonly first: bigint;
  readonly last: bigint;
  /** The original text. */
  readonly text: string;
  /** Whether it was written as a network, whose ends may then be its network and broadcast addresses. */
  readonly isNetwork: boolean;
}

/**
 * Reads a network ("10.0.0.0/28"), a range ("10.0.0.1-10.0.0.9") or one address; returns null for other
 * text.
 */
export function parseAddressRange(text: string): AddressRange | null {
  const trimmed = text.trim();
  if (trimmed.includes('/')) {
    const cidr = parseCidr(trimmed);
    if (!cidr) return null;
    const first = toNumber(cidr.bytes);
    const last = first + (1n << BigInt(cidr.bytes.length * 8 - cidr.prefix)) - 1n;
    return { family: cidr.family, first, last, text: trimmed, isNetwork: true };
  }
  const [from = '', to = from, ...rest] = trimmed.split('-').map((part) => part.trim());
  const low = addressBytes(from);
  const high = addressBytes(to);
  if (!low || !high || rest.length > 0 || low.length !== high.length) return null;
  const first = toNumber(low);
  const last = toNumber(high);
  if (last < first) return null;
  return { family: low.length === 4 ? 'ipv4' : 'ipv6', first, last, text: trimmed, isNetwork: false };
}

/** Returns true if the range contains the address. */
export function rangeContains(range: AddressRange, address: string): boolean {
  const bytes = addressBytes(address);
  if (!bytes || (bytes.length === 4) !== (range.family === 'ipv4')) return false;
  const value = toNumber(bytes);
  return value >= range.first && value <= range.last;
}

/** Returns the address with this number in a family. */
export function addressFromNumber(family: IPFamily, value: bigint): string {
  const bytes = new Uint8Array(family === 'ipv4' ? 4 : 16);
  let rest = value;
  for (let i = bytes.length - 1; i >= 0; i--) {
    bytes[i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  return formatAddress(bytes);
}

/** Returns the number of an address; null if `text` is not an address. */
export function addressToNumber(text: string): bigint | null {
  const bytes = addressBytes(text);
  return bytes && toNumber(bytes);
}

/** Returns the smallest set of networks that exactly covers the range, for routes. */
export function rangeCidrs(range: AddressRange): Cidr[] {
  const bits = range.family === 'ipv4' ? 32 : 128;
  const cidrs: Cidr[] = [];
  for (let at = range.first; at <= range.last; ) {
    let free = 0;
    // Larger as long as the network begins here and does not exceed the range.
    while (
      free < bits &&
      (at & (1n << BigInt(free))) === 0n &&
      at + (1n << BigInt(free + 1)) - 1n <= range.last
    )
      free++;
    const cidr = parseCidr(`${addressFromNumber(range.family, at)}/${bits - free}`);
    if (cidr) cidrs.push(cidr);
    at += 1n << BigInt(free);
  }
  return cidrs;
}

function toNumber(bytes: Uint8Array): bigint {
  return bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}
