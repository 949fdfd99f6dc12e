import {
  type Cidr,
  canonicalAddress,
  cidrContains,
  familyOf,
  parseCidr,
  sloppyAddress,
  sloppyCidr,
} from '../../lib/address.ts';
import { type FieldError, invalid } from '../status-error.ts';

export const ADDRESS_RULE = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)';
export const CIDR_RULE = 'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)';

/** Checks an address in any form that upstream's older fields accept; leading zeros are refused. */
export function checkAddress(value: unknown, path: string, errors: FieldError[]): void {
  const text = String(value ?? '');
  if (familyOf(text)) return;
  errors.push(invalid(path, text, sloppyAddress(text) ? 'must not have leading 0s' : ADDRESS_RULE));
}

/**
 * Checks a range in any form that upstream's older fields accept; leading zeros and bits past the prefix are refused.
 */
export function checkCidr(value: unknown, path: string, errors: FieldError[]): Cidr | null {
  const text = String(value ?? '');
  const cidr = parseCidr(text);
  if (!cidr) {
    errors.push(invalid(path, text, sloppyCidr(text) ? 'must not have leading 0s' : CIDR_RULE));
  }
  return cidr;
}

/** Checks a range in its canonical form. */
export function checkCanonicalCidr(value: unknown, path: string, errors: FieldError[]): void {
  const text = String(value ?? '');
  const cidr = parseCidr(text);
  if (!cidr) errors.push(invalid(path, text, CIDR_RULE));
  else if (cidr.text !== text) errors.push(invalid(path, text, `must be in canonical form ("${cidr.text}")`));
}

const UNFIT: readonly (readonly [range: string, detail: string])[] = [
  ['0.0.0.0/32', 'may not be unspecified (0.0.0.0)'],
  ['::/128', 'may not be unspecified (::)'],
  ['127.0.0.0/8', 'may not be in the loopback range (127.0.0.0/8, ::1/128)'],
  ['::1/128', 'may not be in the loopback range (127.0.0.0/8, ::1/128)'],
  ['169.254.0.0/16', 'may not be in the link-local range (169.254.0.0/16, fe80::/10)'],
  ['fe80::/10', 'may not be in the link-local range (169.254.0.0/16, fe80::/10)'],
  ['224.0.0.0/24', 'may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)'],
  ['ff02::/16', 'may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)'],
];

/** Checks an address to which a Service may send traffic: not local to this machine or link. */
export function checkEndpointAddress(value: unknown, path: string, errors: FieldError[]): void {
  const text = String(value ?? '');
  const address = sloppyAddress(text);
  if (!address) {
    errors.push(invalid(path, text, 'must be a valid IP address'));
    return;
  }
  for (const [range, detail] of UNFIT) {
    const cidr = parseCidr(range);
    if (cidr && cidr.family === familyOf(address) && cidrContains(cidr, address)) {
      errors.push(invalid(path, text, detail));
    }
  }
}

/** Reports whether the text is the canonical form of an address. */
export function isCanonicalAddress(text: string): boolean {
  return canonicalAddress(text) === text;
}
