import {
  addressBytes,
  type Cidr,
  canonicalAddress,
  cidrContains,
  familyOf,
  formatAddress,
  type IPFamily,
  parseCidr,
  plainAddress,
  sloppyCidr,
} from '../../lib/address.ts';
import { type FieldError, invalid } from '../status-error.ts';

// The rules of k8s.io/apimachinery/pkg/util/validation (ip.go) with the feature gate StrictIPCIDRValidation: what older
// objects have is kept, and what a client changes must be unambiguous (KEP-4858).

const ADDRESS_RULE = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)';
const CIDR_RULE = 'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)';
const HOST_BITS = 'must not have bits set beyond the prefix length';
const NOTHING: ReadonlySet<string> = new Set();

/** A range as Go's net package reads it: IPv4 in IPv6 is IPv4. */
export interface LooseRange {
  readonly family: IPFamily;
  readonly bytes: Uint8Array;
  readonly prefix: number;
}

/** Returns the canonical text of an address in any form, with IPv4 in IPv6 as IPv4; null if it is none. */
export function looseAddress(text: string): string | null {
  return text.trim() === text ? plainAddress(text) : null;
}

/** Reads a range in any form; null if it is none. */
export function looseRange(text: string): LooseRange | null {
  const cidr = text.trim() === text ? sloppyCidr(text) : null;
  if (!cidr) return null;
  const { bytes, prefix, family } = cidr;
  return isMapped(bytes) ? { family: 'ipv4', bytes: bytes.subarray(12), prefix } : { family, bytes, prefix };
}

/** Returns why a client may not write an address, or null if it may. */
export function addressProblem(text: string): string | null {
  if (looseAddress(text) === null) return ADDRESS_RULE;
  const bytes = addressBytes(text);
  if (!bytes) return 'must not have leading 0s';
  return isMapped(bytes) ? 'must not be an IPv4-mapped IPv6 address' : null;
}

/** Returns why a client may not write a range, or null if it may. */
export function rangeProblem(text: string): string | null {
  if (!looseRange(text)) return CIDR_RULE;
  const cidr = parseCidr(text);
  if (!cidr) return 'must not have leading 0s in IP or prefix length';
  const bytes = addressBytes(addressPart(text)) ?? cidr.bytes;
  if (isMapped(bytes)) return 'must not have an IPv4-mapped IPv6 address';
  return bytes.every((byte, i) => byte === cidr.bytes[i]) ? null : HOST_BITS;
}

/** As `addressProblem`, for fields of newer kinds: an address has one form only. */
export function strictAddressProblem(text: string): string | null {
  const canonical = canonicalAddress(text);
  return addressProblem(text) ?? (canonical === text ? null : `must be in canonical form ("${canonical}")`);
}

/** Checks an address; those of the object before the update (`old`) are kept, whatever they are. */
export function checkAddress(
  value: unknown,
  path: string,
  errors: FieldError[],
  old: ReadonlySet<string> = NOTHING,
): void {
  const text = String(value ?? '');
  const problem = old.has(text) ? null : addressProblem(text);
  if (problem !== null) errors.push(invalid(path, text, problem));
}

/** Checks an address that must be in its canonical form. */
export function checkCanonicalAddress(value: unknown, path: string, errors: FieldError[]): void {
  const text = String(value ?? '');
  const problem = strictAddressProblem(text);
  if (problem !== null) errors.push(invalid(path, text, problem));
}

/** Checks a range, as `checkAddress`. Returns it if it can be read. */
export function checkCidr(
  value: unknown,
  path: string,
  errors: FieldError[],
  old: ReadonlySet<string> = NOTHING,
): LooseRange | null {
  const text = String(value ?? '');
  const problem = old.has(text) ? null : rangeProblem(text);
  if (problem !== null) errors.push(invalid(path, text, problem));
  return looseRange(text);
}

/** Checks a range that must be in its canonical form. */
export function checkCanonicalCidr(value: unknown, path: string, errors: FieldError[]): void {
  const text = String(value ?? '');
  const canonical = parseCidr(text)?.text;
  const problem =
    rangeProblem(text) ?? (canonical === text ? null : `must be in canonical form ("${canonical}")`);
  if (problem !== null) errors.push(invalid(path, text, problem));
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
  const address = looseAddress(text);
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

/** Warns of an address in another form than the canonical one. */
export function addressWarnings(value: unknown, path: string): string[] {
  const text = String(value ?? '');
  const address = looseAddress(text);
  if (address === null || address === text) return [];
  const [name, canonical] = [JSON.stringify(text), JSON.stringify(address)];
  return addressProblem(text) === null
    ? [`${path}: IPv6 address ${name} should be in RFC 5952 canonical format (${canonical})`]
    : [`${path}: non-standard IP address ${name} is invalid: use ${canonical}`];
}

/** Warns of a range in another form than the canonical one. */
export function rangeWarnings(value: unknown, path: string): string[] {
  const text = String(value ?? '');
  const range = looseRange(text);
  const canonical = canonicalRange(text);
  if (!range || canonical === null || canonical === text) return [];
  const [name, whole] = [JSON.stringify(text), JSON.stringify(canonical)];
  const problem = rangeProblem(text);
  if (problem === null)
    return [`${path}: IPv6 CIDR value ${name} should be in RFC 5952 canonical format (${whole})`];
  if (problem !== HOST_BITS) return [`${path}: non-standard CIDR value ${name} is invalid: use ${whole}`];
  const one = JSON.stringify(`${looseAddress(addressPart(text))}/${range.bytes.length * 8}`);
  return [`${path}: CIDR value ${name} is ambiguous in this context (should be ${whole} or ${one}?)`];
}

/** Returns the text of a range in any form as Go writes it: IPv4 in IPv6 is IPv4. */
function canonicalRange(text: string): string | null {
  const cidr = sloppyCidr(text);
  if (!cidr) return null;
  return isMapped(cidr.bytes) ? `${formatAddress(cidr.bytes.subarray(12))}/${cidr.prefix - 96}` : cidr.text;
}

const addressPart = (range: string): string => range.split('/')[0] ?? '';

/** Reports whether the bytes are an IPv4 address in IPv6 (::ffff:0:0/96). */
const isMapped = (bytes: Uint8Array): boolean => bytes.length === 16 && formatAddress(bytes).includes('.');

/** Reports whether a range contains another one, and is larger. */
export function isProperPart(part: LooseRange, whole: LooseRange): boolean {
  const cidr: Cidr = { ...whole, text: '' };
  return part.family === whole.family && cidrContains(cidr, part.bytes) && whole.prefix < part.prefix;
}
