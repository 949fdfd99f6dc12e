import {
  type Attributes,
  eachAttribute,
  readAttributes,
  readBe32,
  readText,
  readU16,
} from '../kernel/netlink/attributes.ts';
import { NFTA, register, VERDICT } from '../kernel/nftables/constants.ts';
import type { DumpedElement, RuleDump } from '../kernel/nftables/dump.ts';
import type {
  FilterCondition,
  FilterEffect,
  FilterLoad,
  FilterOperation,
  FilterPart,
  FilterRange,
  FilterRule,
} from './filter-rules.ts';

// Expressions and their attributes as in linux/netfilter/nf_tables.h.

/** A set as its rules read it. */
export interface FilterSet {
  readonly keyLength: number;
  readonly isInterval: boolean;
  /** Null: too many to read. */
  readonly elements: readonly DumpedElement[] | null;
}

const BASES: Readonly<Record<number, 'network' | 'transport'>> = { 1: 'network', 2: 'transport' };
/** enum nft_meta_keys. */
const META: Readonly<Record<number, Exclude<FilterLoad['of'], 'network' | 'transport'>>> = {
  1: 'ethertype',
  6: 'input',
  7: 'output',
  15: 'family',
  16: 'protocol',
};
const META_LENGTH: Readonly<Record<number, number>> = { 1: 2, 6: 16, 7: 16, 15: 1, 16: 1 };
const CT_STATE = 0;
/** enum nft_cmp_ops. */
const OPERATIONS: readonly FilterOperation[] = ['==', '!=', '<', '<=', '>', '>='];
const RANGE_NOT_EQUAL = 1;
const LOOKUP_INVERTED = 1;
/** NFT_NAT_SNAT. */
const NAT_SOURCE = 0;
/** NFT_OBJECT_COUNTER. */
const OBJECT_COUNTER = 1;
/** Expressions without an effect on the packet's way. */
const WITHOUT_EFFECT: ReadonlySet<string> = new Set(['counter', 'log', 'last', 'notrack', 'dup']);
const OTHER_EFFECTS: Readonly<Record<string, string>> = {
  redir: 'redirect',
  tproxy: 'tproxy',
  queue: 'queue',
  synproxy: 'synproxy',
  fwd: 'fwd',
};

/** Numbers of 32-bit registers by the kernel's number; see `register`. */
const WORDS = new Map(Array.from({ length: 16 }, (_, word) => [register(word), word]));

/** Reads a rule; `setOf`: the sets of its table by name. */
export function readFilterRule(
  { handle, comment, expressions }: RuleDump,
  setOf: (name: string) => FilterSet | undefined,
): FilterRule {
  const conditions: FilterCondition[] = [];
  const words = new Map<number, FilterPart>();
  let effect: FilterEffect = { kind: 'none' };
  for (const [, bytes] of eachAttribute(expressions)) {
    const expression = readAttributes(bytes);
    const name = readText(expression.get(NFTA.expression.name) ?? new Uint8Array(0));
    const data = readAttributes(expression.get(NFTA.expression.data) ?? new Uint8Array(0));
    const found = readExpression(name, data, words, setOf);
    if (found === 'unknown') {
      // It may have written any register.
      words.clear();
      conditions.push({ kind: 'unknown' });
    } else if (found !== null && 'condition' in found) conditions.push(...found.condition);
    else if (found !== null) {
      effect = found.effect;
      // Expressions after a verdict are not reached.
      if (effect.kind !== 'none') break;
    }
  }
  return { handle, comment, conditions, effect };
}

type Found = { readonly condition: readonly FilterCondition[] } | { readonly effect: FilterEffect };

function readExpression(
  name: string,
  data: Attributes,
  words: Map<number, FilterPart>,
  setOf: (name: string) => FilterSet | undefined,
): Found | 'unknown' | null {
  const number = (type: number): number | null => {
    const value = data.get(type);
    return value ? readBe32(value) : null;
  };
  const word = (type: number): number => WORDS.get(number(type) ?? -1) ?? -1;
  switch (name) {
    case 'payload': {
      const to = number(NFTA.payload.destination);
      // Writes the packet.
      if (to === null) return null;
      const base = BASES[number(NFTA.payload.base) ?? -1];
      const length = number(NFTA.payload.length) ?? 0;
      const offset = number(NFTA.payload.offset) ?? 0;
      const load: FilterLoad = base ? { of: base, offset, length } : { of: 'other', length };
      words.set(WORDS.get(to) ?? -1, { load, mask: null });
      return null;
    }
    case 'meta': {
      const to = number(NFTA.meta.destination);
      if (to === null) return null;
      const key = number(NFTA.meta.key) ?? -1;
      const of = META[key] ?? 'other';
      words.set(WORDS.get(to) ?? -1, { load: { of, length: META_LENGTH[key] ?? 4 }, mask: null });
      return null;
    }
    case 'ct': {
      const to = number(NFTA.ct.destination);
      if (to === null) return null;
      const of = number(NFTA.ct.key) === CT_STATE ? 'state' : 'other';
      words.set(WORDS.get(to) ?? -1, { load: { of, length: 4 }, mask: null });
      return null;
    }
    case 'bitwise': {
      const part = words.get(word(NFTA.bitwise.source));
      const mask = dataOf(data.get(NFTA.bitwise.mask));
      const xor = dataOf(data.get(NFTA.bitwise.xor));
      const isPlain =
        part?.mask === null && mask !== null && (number(NFTA.bitwise.operation) ?? 0) === 0 && isZero(xor);
      const length = number(NFTA.bitwise.length) ?? 4;
      words.set(
        word(NFTA.bitwise.destination),
        isPlain && part ? { ...part, mask: hexOf(mask) } : { load: { of: 'other', length }, mask: null },
      );
      return null;
    }
    case 'cmp': {
      const part = words.get(word(NFTA.cmp.source));
      const value = dataOf(data.get(NFTA.cmp.data));
      const operation = OPERATIONS[number(NFTA.cmp.operation) ?? -1];
      if (!part || !value || !operation) return 'unknown';
      return { condition: [{ kind: 'compare', part, operation, value: hexOf(value) }] };
    }
    case 'range': {
      const part = words.get(word(NFTA.range.source));
      const [from, to] = [dataOf(data.get(NFTA.range.from)), dataOf(data.get(NFTA.range.to))];
      if (!part || !from || !to) return 'unknown';
      const isNegated = number(NFTA.range.operation) === RANGE_NOT_EQUAL;
      const ranges = [[hexOf(from), hexOf(to)]] as const;
      return { condition: [{ kind: 'ranges', parts: [part], isNegated, ranges }] };
    }
    case 'lookup':
      return readLookup(data, words, setOf);
    case 'immediate': {
      const nest = data.get(NFTA.immediate.data);
      const verdict = nest && readAttributes(nest).get(NFTA.data.verdict);
      // A value for a later expression, such as the address of a translation.
      if (!verdict) return null;
      return { effect: verdictOf(readAttributes(verdict)) };
    }
    case 'reject':
      return { effect: { kind: 'reject' } };
    case 'nat': {
      const isSource = number(NFTA.nat.type) === NAT_SOURCE;
      return { effect: isSource ? { kind: 'source' } : { kind: 'other', text: 'dnat' } };
    }
    case 'masq':
      return { effect: { kind: 'source' } };
    case 'objref':
      return number(NFTA.objref.type) === OBJECT_COUNTER ? null : 'unknown';
    case 'dynset':
      return data.has(NFTA.dynset.expression) ? 'unknown' : null;
    case 'match':
      return readMatch(data);
    case 'target':
      return readTarget(data);
    default: {
      if (WITHOUT_EFFECT.has(name)) return null;
      const text = OTHER_EFFECTS[name];
      return text === undefined ? 'unknown' : { effect: { kind: 'other', text } };
    }
  }
}

function readLookup(
  data: Attributes,
  words: Map<number, FilterPart>,
  setOf: (name: string) => FilterSet | undefined,
): Found | 'unknown' | null {
  const set = setOf(readText(data.get(NFTA.lookup.set) ?? new Uint8Array(0)));
  const source = data.get(NFTA.lookup.source);
  const parts = set && partsFrom(words, WORDS.get(source ? readBe32(source) : -1) ?? -1, set.keyLength);
  if (!set || !parts) return 'unknown';
  const destination = data.get(NFTA.lookup.destination);
  const elements = set.elements && rangesOf(set.elements, set);
  if (!destination) {
    const flags = data.get(NFTA.lookup.flags);
    const isNegated = flags !== undefined && (readBe32(flags) & LOOKUP_INVERTED) !== 0;
    const ranges = elements && elements.map(({ range }) => range);
    return { condition: [{ kind: 'ranges', parts, isNegated, ranges }] };
  }
  // A map of data: the value goes to a register, and packets without an element leave the rule.
  if (readBe32(destination) !== 0) return 'unknown';
  const effects =
    elements && elements.map(({ range, verdict }) => ({ range, effect: effectOf(verdict ?? 'continue') }));
  return { effect: { kind: 'map', parts, elements: effects } };
}

/** Returns the parts of a key that begins at a register. */
function partsFrom(
  words: ReadonlyMap<number, FilterPart>,
  first: number,
  keyLength: number,
): FilterPart[] | null {
  const parts: FilterPart[] = [];
  for (let at = 0; at < keyLength; ) {
    const part = words.get(first + at / 4);
    if (!part || part.load.length === 0) return null;
    parts.push(part);
    at += (part.load.length + 3) & ~3;
  }
  return parts;
}

/** Returns the elements with inclusive bounds. Sets of intervals list where one begins and where it has ended. */
function rangesOf(
  elements: readonly DumpedElement[],
  { isInterval, keyLength }: FilterSet,
): { readonly range: FilterRange; readonly verdict: string | null }[] {
  if (!isInterval || elements.some(({ keyEnd }) => keyEnd !== null))
    return elements.map(({ key, keyEnd, verdict }) => ({
      range: [hexOf(key), hexOf(keyEnd ?? key)],
      verdict,
    }));
  const sorted = [...elements].sort(
    (a, b) => Buffer.compare(a.key, b.key) || Number(b.intervalEnd) - Number(a.intervalEnd),
  );
  return sorted.flatMap(({ key, intervalEnd, verdict }, i) => {
    if (intervalEnd) return [];
    const next = sorted[i + 1];
    const last = next ? before(next.key) : new Uint8Array(keyLength).fill(0xff);
    return [{ range: [hexOf(key), hexOf(last)] as const, verdict }];
  });
}

/** Returns the key before another one, as a big-endian number. */
function before(key: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(key);
  for (let i = bytes.length - 1; i >= 0; i--) {
    const byte = bytes[i] ?? 0;
    bytes[i] = byte === 0 ? 0xff : byte - 1;
    if (byte !== 0) break;
  }
  return bytes;
}

function verdictOf(verdict: Attributes): FilterEffect {
  const code = verdict.get(NFTA.verdict.code);
  const chain = verdict.get(NFTA.verdict.chain);
  const number = code ? readBe32(code) | 0 : 0;
  const name = Object.entries(VERDICT).find(([, value]) => value === number)?.[0] ?? 'continue';
  return effectOf(chain ? `${name} ${readText(chain)}` : name);
}

/** Returns the effect of a verdict as dumps name it: "drop", "jump chain". */
function effectOf(verdict: string): FilterEffect {
  const [name = '', chain = ''] = verdict.split(' ');
  switch (name) {
    case 'accept':
    case 'drop':
    case 'return':
      return { kind: name };
    case 'jump':
    case 'goto':
      return { kind: name, chain };
    default:
      return { kind: 'none' };
  }
}

const TCP_INVERTED = { source: 1, destination: 2 } as const;
/** XT_CONNTRACK_STATE, and where struct xt_conntrack_mtinfo3 has its flags, their inversion and the states. */
const CONNTRACK = { state: 1, flagsAt: 146, invertAt: 148, statesAt: 150, bytes: 154 } as const;

/** Reads an extension of x_tables, which iptables-nft puts into rules. */
function readMatch(data: Attributes): Found | 'unknown' | null {
  const name = readText(data.get(NFTA.target.name) ?? new Uint8Array(0));
  const info = data.get(NFTA.target.info) ?? new Uint8Array(0);
  switch (name) {
    case 'comment':
      return null;
    case 'tcp': {
      // struct xt_tcp: ranges of ports, then option, masks of flags, inversions.
      const [mask = 0, compared = 0, inverted = 0] = info.subarray(9, 12);
      const option = info[8] ?? 0;
      const ports = portConditions(info, inverted);
      if (option !== 0 || (inverted & ~3) !== 0) return 'unknown';
      if (mask === 0) return { condition: ports };
      const part: FilterPart = {
        load: { of: 'transport', offset: 13, length: 1 },
        mask: mask.toString(16).padStart(2, '0'),
      };
      const value = compared.toString(16).padStart(2, '0');
      return { condition: [...ports, { kind: 'compare', part, operation: '==', value }] };
    }
    case 'udp':
      return { condition: portConditions(info, info[8] ?? 0) };
    case 'conntrack': {
      if (info.length < CONNTRACK.bytes || readU16(info, CONNTRACK.flagsAt) !== CONNTRACK.state)
        return 'unknown';
      const isInverted = (readU16(info, CONNTRACK.invertAt) & CONNTRACK.state) !== 0;
      return { condition: [stateCondition(readU16(info, CONNTRACK.statesAt), isInverted)] };
    }
    case 'state':
      return { condition: [stateCondition(readU16(info), false)] };
    default:
      return 'unknown';
  }
}

/** XT_CONNTRACK_STATE_BIT has the bits of `ct state` in its low byte, and those of translated flows. */
const stateCondition = (states: number, isInverted: boolean): FilterCondition => ({
  kind: 'states',
  states: states & 0xff,
  isInverted,
});

/** Returns the conditions on ports of struct xt_tcp and struct xt_udp. */
function portConditions(info: Uint8Array, inverted: number): FilterCondition[] {
  const hex = (at: number) => readU16(info, at).toString(16).padStart(4, '0');
  const range = (at: number, offset: number, isNegated: boolean): FilterCondition => ({
    kind: 'ranges',
    parts: [{ load: { of: 'transport', offset, length: 2 }, mask: null }],
    isNegated,
    ranges: [[hex(at), hex(at + 2)]],
  });
  return [
    range(0, 0, (inverted & TCP_INVERTED.source) !== 0),
    range(4, 2, (inverted & TCP_INVERTED.destination) !== 0),
  ];
}

const TARGETS_WITHOUT_EFFECT: ReadonlySet<string> = new Set([
  ...['LOG', 'NFLOG', 'MARK', 'CONNMARK', 'TRACE', 'CT', 'NOTRACK', 'TCPMSS', 'CHECKSUM', 'CLASSIFY'],
  ...['DSCP', 'TOS', 'SET', 'AUDIT', 'CONNSECMARK', 'SECMARK'],
]);

function readTarget(data: Attributes): Found | null {
  const name = readText(data.get(NFTA.target.name) ?? new Uint8Array(0));
  if (TARGETS_WITHOUT_EFFECT.has(name)) return null;
  if (name === 'REJECT') return { effect: { kind: 'reject' } };
  if (name === 'MASQUERADE' || name === 'SNAT') return { effect: { kind: 'source' } };
  return { effect: { kind: 'other', text: name } };
}

function dataOf(nest: Uint8Array | undefined): Uint8Array | null {
  return (nest && readAttributes(nest).get(NFTA.data.value)) ?? null;
}

const isZero = (bytes: Uint8Array | null): boolean => bytes === null || bytes.every((byte) => byte === 0);
const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
