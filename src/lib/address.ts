export type IPFamily = 'ipv4' | 'ipv6';

/** The families as Kubernetes' API and messages name them. */
export const FAMILY_NAMES = { ipv4: 'IPv4', ipv6: 'IPv6' } as const satisfies Record<IPFamily, string>;

/** A network: base address bytes (4 or 16, host bits cleared) and prefix length. */
export interface Cidr {
  readonly family: IPFamily;
  readonly bytes: Uint8Array;
  readonly prefix: number;
  /** Canonical text, for example "10.0.0.0/8". */
  readonly text: string;
}

/** An address in canonical text, and a port. */
export interface SocketAddress {
  readonly ip: string;
  readonly port: number;
}

/** Returns "10.0.0.1:80", "[fd00::1]:80". */
export function hostPort({ ip, port }: SocketAddress): string {
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
}

/**
 * Returns the bytes of an address in network order (4 or 16), or null if `text` is not an address. Zones
 * ("%eth0") are refused.
 */
export function addressBytes(text: string): Uint8Array | null {
  return text.includes(':') ? ipv6Bytes(text) : ipv4Bytes(text, false);
}

/** Returns the family of an address, or null if `text` is not an address. */
export function familyOf(text: string): IPFamily | null {
  const bytes = addressBytes(text);
  if (!bytes) return null;
  return bytes.length === 4 ? 'ipv4' : 'ipv6';
}

/** Returns the canonical text of an address (RFC 5952 for IPv6), or null if `text` is not an address. */
export function canonicalAddress(text: string): string | null {
  const bytes = addressBytes(text);
  return bytes && formatAddress(bytes);
}

/**
 * Reads an address as Kubernetes reads addresses of old objects: surrounding white space and leading zeros
 * (decimal, never octal: CVE-2021-29923) are accepted. Returns canonical text, or null.
 */
export function sloppyAddress(text: string): string | null {
  const trimmed = text.trim();
  const bytes = trimmed.includes(':') ? ipv6Bytes(trimmed) : ipv4Bytes(trimmed, true);
  return bytes && formatAddress(bytes);
}

/** Works like `sloppyAddress`; IPv4 in IPv6 ("::ffff:10.0.0.1") is IPv4, as in Go's net package. */
export function plainAddress(text: string): string | null {
  const canonical = sloppyAddress(text);
  return canonical?.includes('.') ? canonical.replace(/^.*:/, '') : canonical;
}

/** Returns the text of 4 or 16 address bytes in network order; IPv6 by RFC 5952. */
export function formatAddress(bytes: Uint8Array): string {
  if (bytes.length === 4) return `${bytes[0]}.${bytes[1]}.${bytes[2]}.${bytes[3]}`;
  if (bytes.length !== 16) throw new RangeError(`an address has 4 or 16 bytes, not ${bytes.length}`);
  if (bytes.subarray(0, 10).every((b) => b === 0) && bytes[10] === 0xff && bytes[11] === 0xff) {
    return `::ffff:${bytes.subarray(12).join('.')}`;
  }
  const groups: number[] = [];
  for (let i = 0; i < 16; i += 2) groups.push(((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0));
  let runStart = -1;
  let runLength = 1;
  for (let i = 0; i < 8; i++) {
    let end = i;
    while (end < 8 && groups[end] === 0) end++;
    if (end - i > runLength) {
      runStart = i;
      runLength = end - i;
    }
    if (end > i) i = end;
  }
  const hex = (part: number[]) => part.map((group) => group.toString(16)).join(':');
  if (runStart < 0) return hex(groups);
  return `${hex(groups.slice(0, runStart))}::${hex(groups.slice(runStart + runLength))}`;
}

/** The networks of loopback addresses. */
export const LOOPBACK: Readonly<Record<IPFamily, Cidr>> = {
  ipv4: { family: 'ipv4', bytes: Uint8Array.of(127, 0, 0, 0), prefix: 8, text: '127.0.0.0/8' },
  ipv6: { family: 'ipv6', bytes: new Uint8Array(16).fill(1, 15), prefix: 128, text: '::1/128' },
};

/** Reads "address/prefix"; host bits are cleared. Returns null if it is malformed. */
export function parseCidr(text: string): Cidr | null {
  return readCidr(text, addressBytes);
}

/** Works like `parseCidr`, as lenient as `sloppyAddress`; the prefix length may have leading zeros, too. */
export function sloppyCidr(text: string): Cidr | null {
  return readCidr(text.trim().replace(/\/0+(?=[0-9])/, '/'), (address) => {
    const canonical = sloppyAddress(address);
    return canonical === null ? null : addressBytes(canonical);
  });
}

/** Returns the network of one address: /32 or /128. Null if `text` is not an address. */
export function hostCidr(text: string): Cidr | null {
  const bytes = addressBytes(text);
  return bytes && makeCidr(bytes, bytes.length * 8);
}

/** Returns true if the network contains the address (text or bytes); false across families. */
export function cidrContains(cidr: Cidr, address: string | Uint8Array): boolean {
  const bytes = typeof address === 'string' ? addressBytes(address) : address;
  return bytes !== null && bytes.length === cidr.bytes.length && samePrefix(bytes, cidr.bytes, cidr.prefix);
}

/** Returns true if the two networks overlap. */
export function cidrsOverlap(a: Cidr, b: Cidr): boolean {
  return a.family === b.family && samePrefix(a.bytes, b.bytes, Math.min(a.prefix, b.prefix));
}

/** Returns the number of addresses in a network. */
export function cidrSize(cidr: Cidr): bigint {
  return 1n << BigInt(cidr.bytes.length * 8 - cidr.prefix);
}

/** Returns the address at `index` (0 = the base). Throws RangeError outside the network. */
export function addressAt(cidr: Cidr, index: bigint | number): string {
  const offset = BigInt(index);
  if (offset < 0n || offset >= cidrSize(cidr))
    throw new RangeError(`${cidr.text} has no address number ${index}`);
  return formatAddress(toBytes(toInteger(cidr.bytes) + offset, cidr.bytes.length));
}

/**
 * Returns the index of an address in a network, from its base, or null if the network does not contain it.
 */
export function indexInCidr(cidr: Cidr, address: string): bigint | null {
  const bytes = addressBytes(address);
  if (!bytes || !cidrContains(cidr, bytes)) return null;
  return toInteger(bytes) - toInteger(cidr.bytes);
}

/**
 * Returns the `index`-th network of length `prefix` inside `cidr`. Throws RangeError if it does not exist.
 */
export function subnetAt(cidr: Cidr, prefix: number, index: number): Cidr {
  const bits = cidr.bytes.length * 8;
  if (prefix < cidr.prefix || prefix > bits) throw new RangeError(`${cidr.text} has no /${prefix} inside`);
  if (index < 0 || BigInt(index) >= 1n << BigInt(prefix - cidr.prefix)) {
    throw new RangeError(`${cidr.text} has no /${prefix} number ${index}`);
  }
  const base = toInteger(cidr.bytes) + (BigInt(index) << BigInt(bits - prefix));
  return makeCidr(toBytes(base, cidr.bytes.length), prefix);
}

/** Compares addresses by family, then by value. */
export function compareAddresses(a: string, b: string): number {
  const left = addressBytes(a);
  const right = addressBytes(b);
  if (!left || !right) return a < b ? -1 : a > b ? 1 : 0;
  return left.length - right.length || Buffer.compare(left, right);
}

function readCidr(text: string, read: (address: string) => Uint8Array | null): Cidr | null {
  const slash = text.indexOf('/');
  if (slash < 0) return null;
  const digits = text.slice(slash + 1);
  if (!/^(0|[1-9][0-9]{0,2})$/.test(digits)) return null;
  const bytes = read(text.slice(0, slash));
  const prefix = Number(digits);
  if (!bytes || prefix > bytes.length * 8) return null;
  return makeCidr(bytes, prefix);
}

function makeCidr(address: Uint8Array, prefix: number): Cidr {
  const bytes = Uint8Array.from(address, (byte, i) => {
    const keep = Math.min(8, Math.max(0, prefix - i * 8));
    return byte & (0xff << (8 - keep));
  });
  return {
    family: bytes.length === 4 ? 'ipv4' : 'ipv6',
    bytes,
    prefix,
    text: `${formatAddress(bytes)}/${prefix}`,
  };
}

function samePrefix(a: Uint8Array, b: Uint8Array, prefix: number): boolean {
  const whole = prefix >> 3;
  for (let i = 0; i < whole; i++) if (a[i] !== b[i]) return false;
  const rest = prefix & 7;
  return rest === 0 || (((a[whole] ?? 0) ^ (b[whole] ?? 0)) & (0xff << (8 - rest)) & 0xff) === 0;
}

function toInteger(bytes: Uint8Array): bigint {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value;
}

function toBytes(value: bigint, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = length - 1, rest = value; i >= 0; i--, rest >>= 8n) bytes[i] = Number(rest & 0xffn);
  return bytes;
}

const ZERO = 48;
const DOT = 46;

function ipv4Bytes(text: string, leadingZeros: boolean): Uint8Array | null {
  return leadingZeros ? looseIpv4Bytes(text) : strictIpv4Bytes(text);
}

/** Character by character: a cluster has hundreds of thousands of addresses. */
function strictIpv4Bytes(text: string): Uint8Array | null {
  const bytes = new Uint8Array(4);
  let part = 0;
  let digits = 0;
  let value = 0;
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - ZERO;
    if (digit >= 0 && digit <= 9) {
      // A leading zero is only allowed in the number 0.
      if (digits > 0 && value === 0) return null;
      value = value * 10 + digit;
      if (++digits > 3 || value > 255) return null;
      continue;
    }
    if (text.charCodeAt(i) !== DOT || digits === 0 || part === 3) return null;
    bytes[part++] = value;
    digits = 0;
    value = 0;
  }
  if (part !== 3 || digits === 0) return null;
  bytes[3] = value;
  return bytes;
}

function looseIpv4Bytes(text: string): Uint8Array | null {
  const parts = text.split('.');
  if (parts.length !== 4) return null;
  const bytes = new Uint8Array(4);
  for (const [i, part] of parts.entries()) {
    if (!/^[0-9]{1,16}$/.test(part)) return null;
    const value = Number(part);
    if (value > 255) return null;
    bytes[i] = value;
  }
  return bytes;
}

function ipv6Bytes(text: string): Uint8Array | null {
  let source = text;
  const lastColon = source.lastIndexOf(':');
  if (source.includes('.')) {
    const tail = ipv4Bytes(source.slice(lastColon + 1), false);
    if (!tail) return null;
    const [a = 0, b = 0, c = 0, d = 0] = tail;
    source = `${source.slice(0, lastColon + 1)}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const halves = source.split('::');
  if (halves.length > 2) return null;
  const [head = [], tail = []] = halves.map((half) => (half === '' ? [] : half.split(':')));
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  const groups = [...head, ...Array<string>(halves.length === 1 ? 0 : missing).fill('0'), ...tail];
  const bytes = new Uint8Array(16);
  for (const [i, group] of groups.entries()) {
    if (!/^[0-9a-fA-F]{1,4}$/.test(group)) return null;
    const value = Number.parseInt(group, 16);
    bytes[i * 2] = value >> 8;
    bytes[i * 2 + 1] = value & 0xff;
  }
  return bytes;
}
