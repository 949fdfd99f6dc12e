import { isIP } from 'node:net';
import { type Environment, Optional } from '@marcbachmann/cel-js';
import { addQuantities, canonicalQuantity, quantityNano } from '../../kube/quantity-text.ts';
import { type Cidr, canonicalAddress, cidrContains, familyOf, parseCidr } from '../../lib/address.ts';
import { re2 } from '../re2.ts';
import { labelValueProblems, nameProblems } from '../validation/names.ts';
import { MATCHES } from './syntax-tree.ts';

/** Values of the types that Kubernetes adds to CEL (k8s.io/apiserver/pkg/cel). */
class Quantity {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  get nano(): bigint {
    return quantityNano(this.text) ?? 0n;
  }
}
class Url {
  readonly url: URL;
  readonly text: string;
  constructor(text: string) {
    this.text = text;
    this.url = new URL(text);
  }
}
class Ip {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
/** A network, and the address with which it was written: "10.0.0.1/8". */
class CidrValue {
  readonly cidr: Cidr;
  readonly address: string;
  constructor(cidr: Cidr, address: string) {
    this.cidr = cidr;
    this.address = address;
  }
}
class Sets {}
/** The library of named formats (k8s.io/apiserver/pkg/cel/library/format.go), and one of them. */
class Formats {}
class NamedFormat {
  readonly problems: (text: string) => readonly string[];
  constructor(problems: (text: string) => readonly string[]) {
    this.problems = problems;
  }
}

type Handler = (...args: never[]) => unknown;

/** Adds Kubernetes' function libraries: strings, lists, sets, regular expressions, URLs, addresses, quantities. */
export function registerKubernetesFunctions(environment: Environment): Environment {
  environment
    .registerType('Quantity', { ctor: Quantity })
    .registerType('URL', { ctor: Url })
    .registerType('IP', { ctor: Ip })
    .registerType('CIDR', { ctor: CidrValue })
    .registerType('Sets', { ctor: Sets })
    .registerType('Formats', { ctor: Formats })
    .registerType('NamedFormat', { ctor: NamedFormat })
    .registerConstant('sets', 'Sets', new Sets())
    .registerConstant('format', 'Formats', new Formats());
  for (const [signature, handler] of [
    ...STRINGS,
    ...LISTS,
    ...URLS,
    ...ADDRESSES,
    ...QUANTITIES,
    ...FORMATS,
  ]) {
    environment.registerFunction(signature, handler as (...args: unknown[]) => unknown);
  }
  environment
    .registerOperator('Quantity == Quantity', (a: Quantity, b: Quantity) => a.nano === b.nano)
    .registerOperator('URL == URL', (a: Url, b: Url) => a.text === b.text)
    .registerOperator('IP == IP', (a: Ip, b: Ip) => a.text === b.text)
    // An optional value is equal to another one only (cel-go common/types/optional.go).
    .registerOperator('optional == null', () => false)
    .registerOperator('CIDR == CIDR', (a: CidrValue, b: CidrValue) => cidrText(a) === cidrText(b));
  return environment;
}

const matches = (text: string, pattern: string): boolean => re2(pattern).test(text);
const STRINGS: readonly (readonly [string, Handler])[] = [
  ['string.charAt(int): string', (text: string, at: bigint) => text.charAt(Number(at))],
  [
    'string.replace(string, string): string',
    (text: string, from: string, to: string) => text.split(from).join(to),
  ],
  [
    'string.replace(string, string, int): string',
    (text: string, from: string, to: string, count: bigint) => {
      const parts = text.split(from);
      const limit = count < 0n ? parts.length : Number(count);
      return parts.reduce((all, part, i) => (i === 0 ? part : `${all}${i <= limit ? to : from}${part}`), '');
    },
  ],
  ['string.reverse(): string', (text: string) => [...text].reverse().join('')],
  ['string.find(string): string', (text: string, pattern: string) => re2(pattern).exec(text)?.[0] ?? ''],
  [
    'string.findAll(string): list<string>',
    (text: string, pattern: string) => [...text.matchAll(re2(pattern, true))].map(([found]) => found),
  ],
  [
    'string.findAll(string, int): list<string>',
    (text: string, pattern: string, limit: bigint) => {
      const all = [...text.matchAll(re2(pattern, true))].map(([found]) => found);
      return limit < 0n ? all : all.slice(0, Number(limit));
    },
  ],
  [`string.${MATCHES}(string): bool`, matches],
  [`${MATCHES}(string, string): bool`, matches],
  ['string.format(list): string', (text: string, values: unknown[]) => format(text, values)],
];

/** Formats text with the verbs of CEL's string extension: %s, %d, %f, %e, %b, %x, %X, %o. */
function format(text: string, values: readonly unknown[]): string {
  let next = 0;
  return text.replace(
    /%%|%(?:\.(\d+))?([sdfebxXo])/g,
    (match, precision: string | undefined, verb: string) => {
      if (match === '%%') return '%';
      if (next >= values.length) throw new Error(`index ${next} out of range`);
      const value = values[next++];
      switch (verb) {
        case 'f':
          return Number(value).toFixed(precision === undefined ? 6 : Number(precision));
        case 'e':
          return Number(value).toExponential(precision === undefined ? 6 : Number(precision));
        case 'b':
          return typeof value === 'boolean' ? `${Number(value)}` : BigInt(value as bigint).toString(2);
        case 'x':
          return BigInt(value as bigint).toString(16);
        case 'X':
          return BigInt(value as bigint)
            .toString(16)
            .toUpperCase();
        case 'o':
          return BigInt(value as bigint).toString(8);
        default:
          return shown(value);
      }
    },
  );
}

function shown(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(shown).join(', ')}]`;
  return value === null ? 'null' : String(value);
}

type Comparable = bigint | number | string;
const smaller = (a: Comparable, b: Comparable) => (b < a ? b : a);
const larger = (a: Comparable, b: Comparable) => (b > a ? b : a);
const nonEmpty = <T>(list: readonly T[], name: string): readonly T[] => {
  if (list.length === 0) throw new Error(`${name} called on empty list`);
  return list;
};
const hasValue = (list: readonly unknown[], value: unknown) => list.some((one) => sameValue(one, value));

/** Implements CEL's equality: numbers of different types compare by value. */
function sameValue(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, i) => sameValue(item, b[i]));
  }
  // biome-ignore lint/suspicious/noDoubleEquals: an int and a double of one value are equal in CEL
  return typeof a === 'bigint' || typeof b === 'bigint' ? a == b : a === b;
}

const LISTS: readonly (readonly [string, Handler])[] = [
  [
    'list.isSorted(): bool',
    (list: Comparable[]) => list.every((one, i) => i === 0 || (list[i - 1] ?? one) <= one),
  ],
  [
    'list.sum(): dyn',
    (list: Comparable[]) =>
      list.reduce(
        (sum, one) => (typeof sum === 'bigint' ? sum + (one as bigint) : Number(sum) + Number(one)),
        typeof list[0] === 'number' ? 0 : 0n,
      ),
  ],
  ['list.min(): dyn', (list: Comparable[]) => nonEmpty(list, 'min').reduce(smaller)],
  ['list.max(): dyn', (list: Comparable[]) => nonEmpty(list, 'max').reduce(larger)],
  [
    'list.indexOf(dyn): int',
    (list: unknown[], value: unknown) => BigInt(list.findIndex((one) => sameValue(one, value))),
  ],
  [
    'list.lastIndexOf(dyn): int',
    (list: unknown[], value: unknown) => BigInt(list.findLastIndex((one) => sameValue(one, value))),
  ],
  [
    'Sets.contains(list, list): bool',
    (_: Sets, a: unknown[], b: unknown[]) => b.every((one) => hasValue(a, one)),
  ],
  [
    'Sets.intersects(list, list): bool',
    (_: Sets, a: unknown[], b: unknown[]) => b.some((one) => hasValue(a, one)),
  ],
  [
    'Sets.equivalent(list, list): bool',
    (_: Sets, a: unknown[], b: unknown[]) =>
      b.every((one) => hasValue(a, one)) && a.every((one) => hasValue(b, one)),
  ],
];

const URLS: readonly (readonly [string, Handler])[] = [
  ['url(string): URL', (text: string) => new Url(text)],
  // net/url.ParseRequestURI: an absolute URI or an absolute path.
  ['isURL(string): bool', (text: string) => URL.canParse(text)],
  ['URL.getScheme(): string', ({ url }: Url) => url.protocol.replace(/:$/, '')],
  ['URL.getHost(): string', ({ url }: Url) => url.host],
  ['URL.getHostname(): string', ({ url }: Url) => url.hostname.replace(/^\[(.*)\]$/, '$1')],
  ['URL.getPort(): string', ({ url }: Url) => url.port],
  ['URL.getEscapedPath(): string', ({ url }: Url) => url.pathname],
  [
    'URL.getQuery(): dyn',
    ({ url }: Url) =>
      Object.fromEntries([...url.searchParams.keys()].map((key) => [key, url.searchParams.getAll(key)])),
  ],
];

function address(text: string): Ip {
  if (isIP(text) === 0 || text.includes('%'))
    throw new Error(`IP Address ${JSON.stringify(text)} parse error`);
  return new Ip(canonicalAddress(text) ?? text);
}

function network(text: string): CidrValue {
  const cidr = parseCidr(text);
  if (!cidr) throw new Error(`network address parse error: ${JSON.stringify(text)}`);
  const written = text.slice(0, text.indexOf('/'));
  return new CidrValue(cidr, canonicalAddress(written) ?? written);
}

const cidrText = ({ cidr, address: written }: CidrValue): string => `${written}/${cidr.prefix}`;
const baseOf = ({ text }: Cidr): string => text.slice(0, text.indexOf('/'));

const bytesOf = ({ text }: Ip) => text;
const ADDRESSES: readonly (readonly [string, Handler])[] = [
  ['ip(string): IP', address],
  ['isIP(string): bool', (text: string) => isIP(text) !== 0 && !text.includes('%')],
  ['string(IP): string', bytesOf],
  ['IP.family(): int', ({ text }: Ip) => (familyOf(text) === 'ipv4' ? 4n : 6n)],
  ['IP.isUnspecified(): bool', ({ text }: Ip) => text === '0.0.0.0' || text === '::'],
  ['IP.isLoopback(): bool', ({ text }: Ip) => text.startsWith('127.') || text === '::1'],
  ['IP.isLinkLocalUnicast(): bool', ({ text }: Ip) => text.startsWith('169.254.') || /^fe[89ab]/i.test(text)],
  ['IP.isLinkLocalMulticast(): bool', ({ text }: Ip) => text.startsWith('224.0.0.') || /^ff.2:/i.test(text)],
  [
    'IP.isGlobalUnicast(): bool',
    ({ text }: Ip) =>
      !/^(0\.0\.0\.0|255\.255\.255\.255|127\.|169\.254\.|22[4-9]\.|23\d\.|::1?$|fe[89ab]|ff)/i.test(text),
  ],
  ['cidr(string): CIDR', network],
  ['isCIDR(string): bool', (text: string) => parseCidr(text) !== null],
  ['string(CIDR): string', cidrText],
  ['CIDR.ip(): IP', ({ address: written }: CidrValue) => new Ip(written)],
  ['CIDR.masked(): CIDR', ({ cidr }: CidrValue) => new CidrValue(cidr, baseOf(cidr))],
  [
    'CIDR.containsIP(string): bool',
    ({ cidr }: CidrValue, text: string) => cidrContains(cidr, address(text).text),
  ],
  ['CIDR.containsIP(IP): bool', ({ cidr }: CidrValue, ip: Ip) => cidrContains(cidr, ip.text)],
  [
    'CIDR.containsCIDR(string): bool',
    (outer: CidrValue, text: string) => containsNetwork(outer, network(text)),
  ],
  ['CIDR.containsCIDR(CIDR): bool', (outer: CidrValue, inner: CidrValue) => containsNetwork(outer, inner)],
  ['CIDR.prefixLength(): int', ({ cidr }: CidrValue) => BigInt(cidr.prefix)],
];

function containsNetwork(outer: CidrValue, inner: CidrValue): boolean {
  return outer.cidr.prefix <= inner.cidr.prefix && cidrContains(outer.cidr, inner.cidr.bytes);
}

function quantity(text: string): Quantity {
  const canonical = canonicalQuantity(text);
  if (canonical === null)
    throw new Error(
      "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
  return new Quantity(canonical);
}

const compare = (a: Quantity, b: Quantity): bigint => (a.nano < b.nano ? -1n : a.nano > b.nano ? 1n : 0n);
const GIGA = 10n ** 9n;
const QUANTITIES: readonly (readonly [string, Handler])[] = [
  ['quantity(string): Quantity', quantity],
  ['isQuantity(string): bool', (text: string) => canonicalQuantity(text) !== null],
  ['Quantity.isGreaterThan(Quantity): bool', (a: Quantity, b: Quantity) => compare(a, b) > 0n],
  ['Quantity.isLessThan(Quantity): bool', (a: Quantity, b: Quantity) => compare(a, b) < 0n],
  ['Quantity.compareTo(Quantity): int', compare],
  ['Quantity.sign(): int', ({ nano }: Quantity) => (nano < 0n ? -1n : nano > 0n ? 1n : 0n)],
  ['Quantity.isInteger(): bool', ({ nano }: Quantity) => nano % GIGA === 0n],
  [
    'Quantity.asInteger(): int',
    ({ nano }: Quantity) => {
      if (nano % GIGA !== 0n) throw new Error('cannot convert value to integer');
      return nano / GIGA;
    },
  ],
  ['Quantity.asApproximateFloat(): double', ({ nano }: Quantity) => Number(nano) / 1e9],
  ['Quantity.add(Quantity): Quantity', (a: Quantity, b: Quantity) => quantity(addQuantities(b.text, a.text))],
  ['Quantity.add(int): Quantity', (a: Quantity, b: bigint) => quantity(addQuantities(`${b}`, a.text))],
  ['Quantity.sub(Quantity): Quantity', (a: Quantity, b: Quantity) => quantity(`${a.nano - b.nano}n`)],
  ['Quantity.sub(int): Quantity', (a: Quantity, b: bigint) => quantity(`${a.nano - b * GIGA}n`)],
];

/** The names of formats, which are also functions: `format.dns1123Label()`. */
const NAMED_FORMATS: Readonly<Record<string, NamedFormat>> = Object.fromEntries(
  Object.entries<(text: string) => readonly string[]>({
    dns1123Label: (text) => nameProblems(text, 'label'),
    dns1123Subdomain: (text) => nameProblems(text, 'subdomain'),
    dns1035Label: (text) => nameProblems(text, 'label1035'),
    dns1123LabelPrefix: (text) => nameProblems(text.replace(/-$/, 'a'), 'label'),
    dns1123SubdomainPrefix: (text) => nameProblems(text.replace(/-$/, 'a'), 'subdomain'),
    dns1035LabelPrefix: (text) => nameProblems(text.replace(/-$/, 'a'), 'label1035'),
    qualifiedName: (text) => nameProblems(text, 'qualified'),
    labelValue: labelValueProblems,
  }).map(([name, problems]) => [name, new NamedFormat(problems)]),
);

const FORMATS: readonly (readonly [string, Handler])[] = [
  ...Object.entries(NAMED_FORMATS).map(([name, one]): [string, Handler] => [
    `Formats.${name}(): NamedFormat`,
    () => one,
  ]),
  [
    'NamedFormat.validate(string): optional',
    ({ problems }: NamedFormat, text: string) => {
      const found = problems(text);
      return found.length > 0 ? Optional.of(found) : Optional.none();
    },
  ],
];
