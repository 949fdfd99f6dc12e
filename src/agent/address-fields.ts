import { familyOf, parseCidr } from '../lib/address.ts';

/** What is wrong with a text as an address, or null. */
export function address(text: string): string | null {
  return familyOf(text) ? null : 'is no IP address';
}

/** What is wrong with a text as a network, or null. */
export function cidr(text: string): string | null {
  return parseCidr(text) ? null : 'is no network such as 10.244.0.0/16';
}

/** What is wrong with an entry of nodePortAddresses, or null. */
export function nodePortAddress(text: string): string | null {
  return ['primary', 'localhost', 'all'].includes(text) || parseCidr(text)
    ? null
    : 'is neither a network nor one of primary, localhost, all';
}
