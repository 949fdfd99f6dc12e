import { formatAddress } from '../lib/address.ts';
import type { Name } from './message.ts';

/** A reverse name: a whole address, or the leading part of one. */
export interface ReverseName {
  readonly name: Name;
  /** Leading octets, in network order; 4 or 16 for the name of a single address. */
  readonly bytes: Uint8Array;
  /** The number of leading bits in the name. */
  readonly bits: number;
  /** Canonical text for the name of a single address, else null. */
  readonly address: string | null;
  readonly family: 'ipv4' | 'ipv6';
}

const IPV4_ENDING = '.in-addr.arpa';
const IPV6_ENDING = '.ip6.arpa';

/** Parses "1.0.96.10.in-addr.arpa" and "….ip6.arpa" in lower case; null: another name. */
export function reverseAddress(name: Name): ReverseName | null {
  if (name.endsWith(IPV4_ENDING)) {
    const labels = name.slice(0, -IPV4_ENDING.length).split('.').reverse();
    if (labels.length > 4) return null;
    const bytes = new Uint8Array(4);
    for (const [i, label] of labels.entries()) {
      if (!/^(0|[1-9][0-9]{0,2})$/.test(label) || Number(label) > 255) return null;
      bytes[i] = Number(label);
    }
    return reverseName(name, bytes, labels.length * 8, 'ipv4');
  }
  if (name.endsWith(IPV6_ENDING)) {
    const labels = name.slice(0, -IPV6_ENDING.length).split('.').reverse();
    if (labels.length > 32) return null;
    const bytes = new Uint8Array(16);
    for (const [i, label] of labels.entries()) {
      if (!/^[0-9a-f]$/.test(label)) return null;
      bytes[i >> 1] = (bytes[i >> 1] ?? 0) | (Number.parseInt(label, 16) << (i % 2 === 0 ? 4 : 0));
    }
    return reverseName(name, bytes, labels.length * 4, 'ipv6');
  }
  return null;
}

/** Returns the name of the smallest zone, on a label boundary, within a network of this prefix length. */
export function reverseZone(reverse: ReverseName, prefix: number): Name {
  const bitsPerLabel = reverse.family === 'ipv4' ? 8 : 4;
  const keep = Math.max(1, Math.ceil(prefix / bitsPerLabel));
  const labels = reverse.name.split('.');
  return labels.slice(Math.max(0, labels.length - 2 - keep)).join('.');
}

function reverseName(
  name: Name,
  bytes: Uint8Array,
  bits: number,
  family: ReverseName['family'],
): ReverseName {
  const whole = bits === bytes.length * 8;
  return { name, bytes, bits, address: whole ? formatAddress(bytes) : null, family };
}
