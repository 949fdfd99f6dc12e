import { NFPROTO } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';

/** Rules of netfilter that belong to other programs, as plain data, and their effect on the first packet of a flow. */

export type FilterHook = 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting';

/** The part of a packet that a rule reads. Offsets and lengths in bytes. */
export type FilterLoad =
  | { readonly of: 'network' | 'transport'; readonly offset: number; readonly length: number }
  /** `state`: of connection tracking, as `ct state` in nft(8). `input`, `output`: names of devices. */
  | {
      readonly of: 'protocol' | 'family' | 'ethertype' | 'state' | 'input' | 'output';
      readonly length: number;
    }
  | { readonly of: 'other'; readonly length: number };

/** A load with the bits that count. `mask`: hexadecimal, as long as the load; null: all bits. */
export interface FilterPart {
  readonly load: FilterLoad;
  readonly mask: string | null;
}

/** Inclusive bounds, in hexadecimal; of parts in order, each padded to a multiple of four bytes. */
export type FilterRange = readonly [from: string, to: string];

export type FilterOperation = '==' | '!=' | '<' | '<=' | '>' | '>=';

/** All conditions of a rule must hold. */
export type FilterCondition =
  | {
      readonly kind: 'compare';
      readonly part: FilterPart;
      readonly operation: FilterOperation;
      readonly value: string;
    }
  | {
      readonly kind: 'ranges';
      readonly parts: readonly FilterPart[];
      readonly isNegated: boolean;
      /** Null: too many to read. */
      readonly ranges: readonly FilterRange[] | null;
    }
  /** States of `-m conntrack --ctstate`; the bits 0x40 and 0x80 stand for a translated source or destination. */
  | { readonly kind: 'states'; readonly states: number; readonly isInverted: boolean }
  /** A condition that is not simulated, such as a rate. */
  | { readonly kind: 'unknown' };

export type FilterEffect =
  | { readonly kind: 'none' | 'accept' | 'drop' | 'reject' | 'return' }
  | { readonly kind: 'jump' | 'goto'; readonly chain: string }
  /** Changes the source address and lets the packet pass. */
  | { readonly kind: 'source' }
  /** Changes the destination, or an effect that is not simulated. */
  | { readonly kind: 'other'; readonly text: string }
  | {
      readonly kind: 'map';
      readonly parts: readonly FilterPart[];
      readonly elements: readonly { readonly range: FilterRange; readonly effect: FilterEffect }[] | null;
    };

export interface FilterRule {
  /** As `nft -a list ruleset` shows it. */
  readonly handle: number;
  readonly comment: string | null;
  readonly conditions: readonly FilterCondition[];
  readonly effect: FilterEffect;
}

export interface FilterChain {
  readonly name: string;
  /** Null: rules of other chains jump to it. */
  readonly base: {
    readonly hook: FilterHook;
    readonly priority: number;
    readonly policy: 'accept' | 'drop';
    /** Translation is decided for the first packet of a flow. */
    readonly isNat: boolean;
  } | null;
  readonly rules: readonly FilterRule[];
}

export interface FilterTable {
  /** As in nft(8): "ip", "ip6", "inet". */
  readonly family: 'ip' | 'ip6' | 'inet';
  readonly name: string;
  readonly chains: readonly FilterChain[];
}

/** The tables of other programs in a network namespace. */
export interface Filters {
  readonly tables: readonly FilterTable[];
  /** Names of devices by index, for `RouteFound.device`; empty without tables. */
  readonly devices: Readonly<Record<string, string>>;
  /** Tables that are not read, and why: "table ip filter of iptables-legacy". */
  readonly unread: readonly string[];
}

/** The first packet of a flow, or the first reply, where it passes a hook. Null: unknown. */
export interface FilteredPacket {
  readonly family: 'ipv4' | 'ipv6';
  /** The network header up to the addresses, and the transport header; null: an unknown byte. */
  readonly network: readonly (number | null)[];
  readonly transport: readonly (number | null)[];
  readonly protocol: number;
  readonly isReply: boolean;
  readonly input: string | null;
  readonly output: string | null;
}

/** A rule or a chain's policy that decides. */
export interface FilterDecision {
  readonly effect: 'drop' | 'reject' | 'other';
  /** "table inet filter, chain input, priority 0, policy drop". */
  readonly where: string;
  /** "drop", or the effect that is not simulated. */
  readonly text: string;
}

export type FilterVerdict =
  /** `source`: the rule that changes the source address, or perhaps does; null: none. */
  | { readonly kind: 'pass'; readonly source: string | null }
  | { readonly kind: 'stopped'; readonly by: FilterDecision }
  /** Depends on conditions that are not simulated. */
  | { readonly kind: 'unknown'; readonly by: FilterDecision };

/** NF_CT_STATE_BIT of IP_CT_NEW, a flow's first packet, and IP_CT_ESTABLISHED, its replies (linux/netfilter/nf_conntrack_common.h). */
const STATE = { new: 8, established: 2 } as const;
const TRANSLATED = 0xc0;
const ETHERTYPE = { ipv4: 0x0800, ipv6: 0x86dd } as const;
const WITH_PORTS: readonly number[] = Object.values(PROTOCOL_NUMBER);
const TABLE_FAMILIES = { ipv4: ['ip', 'inet'], ipv6: ['ip6', 'inet'] } as const;
/** NFT_JUMP_STACK_SIZE of net/netfilter/nf_tables.h. */
const MAX_DEPTH = 16;
/** The kernel refuses loops; more steps than this are not simulated. */
const MAX_STEPS = 20_000;

/** Chains by their priorities; absent: any. */
export interface Priorities {
  readonly from?: number;
  readonly below?: number;
}

/** Decides what the chains of one hook do with a packet, in the order of their priorities. */
export function filterAt(
  filters: Filters,
  hook: FilterHook,
  packet: FilteredPacket,
  { from = Number.NEGATIVE_INFINITY, below = Number.POSITIVE_INFINITY }: Priorities = {},
): FilterVerdict {
  const families: readonly string[] = TABLE_FAMILIES[packet.family];
  const bases = filters.tables
    .filter(({ family }) => families.includes(family))
    .flatMap((table) =>
      table.chains.flatMap((chain) =>
        chain.base?.hook === hook && !(chain.base.isNat && packet.isReply)
          ? [{ table, chain, base: chain.base }]
          : [],
      ),
    )
    .filter(({ base }) => base.priority >= from && base.priority < below)
    .sort((a, b) => a.base.priority - b.base.priority);
  let doubt: FilterDecision | null = null;
  let source: string | null = null;
  for (const { table, chain, base } of bases) {
    const where = `table ${table.family} ${table.name}, chain ${chain.name}, priority ${base.priority}`;
    const walk = createWalk(table, packet, where);
    const end = walk.run(chain, 0);
    const last =
      end ??
      (base.policy === 'drop'
        ? { effect: 'drop' as const, where: `${where}, policy drop`, text: 'drop' }
        : null);
    if (walk.mayAccept !== null && last !== null && last !== 'accept') return { kind: 'unknown', by: last };
    if (last !== null && last !== 'accept') return stoppedBy(last, doubt);
    doubt ??= walk.doubt;
    source ??= walk.source;
  }
  return doubt === null ? { kind: 'pass', source } : { kind: 'unknown', by: doubt };
}

function stoppedBy(by: FilterDecision, doubt: FilterDecision | null): FilterVerdict {
  if (by.effect === 'other') return { kind: 'unknown', by };
  // Both drop it, or an earlier chain perhaps rejects it: dropped in any case, by an unknown one.
  return doubt?.effect === 'other' ? { kind: 'unknown', by: doubt } : { kind: 'stopped', by };
}

type End = FilterDecision | 'accept' | null;
type Matched = 'yes' | 'no' | 'perhaps';

function createWalk(table: FilterTable, packet: FilteredPacket, place: string) {
  const chains = new Map(table.chains.map((chain) => [chain.name, chain]));
  let steps = 0;
  const walk = {
    /** The first rule that perhaps stops the packet. */
    doubt: null as FilterDecision | null,
    /** A rule that perhaps accepts the packet before the decision. */
    mayAccept: null as FilterRule | null,
    /** The rule that changes the source address, or perhaps does. */
    source: null as string | null,
    run(chain: FilterChain, depth: number): End {
      for (const rule of chain.rules) {
        if (++steps > MAX_STEPS || depth > MAX_DEPTH)
          return { effect: 'other', where: place, text: 'more rules than are simulated' };
        const matched = all(rule.conditions.map((condition) => holds(condition, packet)));
        if (matched === 'no') continue;
        const end = walk.apply(rule, rule.effect, chain, matched, depth);
        if (end !== 'next') return end;
      }
      return null;
    },
    apply(
      rule: FilterRule,
      effect: FilterEffect,
      chain: FilterChain,
      matched: Matched,
      depth: number,
    ): End | 'next' {
      const isSure = matched === 'yes';
      const comment = rule.comment === null ? '' : ` (${rule.comment})`;
      const where = `${place}${chain.base ? '' : `, chain ${chain.name}`}, rule with handle ${rule.handle}${comment}`;
      switch (effect.kind) {
        case 'none':
          return 'next';
        case 'accept':
          if (isSure) return 'accept';
          walk.mayAccept ??= rule;
          return 'next';
        case 'return':
          // Returns to the policy of a base chain, or behind the jump.
          if (isSure) return null;
          walk.mayAccept ??= rule;
          return 'next';
        case 'source':
          walk.source ??= where;
          return isSure ? 'accept' : 'next';
        case 'drop':
        case 'reject':
        case 'other': {
          const text = effect.kind === 'other' ? effect.text : effect.kind;
          const decision = { effect: effect.kind, where, text };
          if (isSure) return decision;
          walk.doubt ??= decision;
          return 'next';
        }
        case 'jump':
        case 'goto': {
          const target = chains.get(effect.chain);
          if (!target) return 'next';
          const end = walk.run(target, depth + 1);
          if (isSure) return end === null && effect.kind === 'jump' ? 'next' : end;
          if (end === 'accept') walk.mayAccept ??= rule;
          else if (end !== null) walk.doubt ??= end;
          return 'next';
        }
        case 'map': {
          if (effect.elements === null) {
            walk.doubt ??= { effect: 'other', where, text: 'a map with more elements than are read' };
            return 'next';
          }
          for (const element of effect.elements) {
            const found = both(matched, within(effect.parts, element.range, packet));
            if (found === 'no') continue;
            const end = walk.apply(rule, element.effect, chain, found, depth);
            if (end !== 'next') return end;
            if (found === 'yes') return 'next';
          }
          return 'next';
        }
      }
    },
  };
  return walk;
}

const all = (found: readonly Matched[]): Matched =>
  found.includes('no') ? 'no' : found.includes('perhaps') ? 'perhaps' : 'yes';
const both = (a: Matched, b: Matched): Matched => all([a, b]);
const not = (found: Matched): Matched => (found === 'yes' ? 'no' : found === 'no' ? 'yes' : 'perhaps');

function holds(condition: FilterCondition, packet: FilteredPacket): Matched {
  switch (condition.kind) {
    case 'unknown':
      return 'perhaps';
    case 'states': {
      const { states, isInverted } = condition;
      const own = packet.isReply ? STATE.established : STATE.new;
      const found = (states & own) !== 0 ? 'yes' : (states & TRANSLATED) !== 0 ? 'perhaps' : 'no';
      return isInverted ? not(found) : found;
    }
    case 'compare': {
      const { part, operation, value } = condition;
      const wanted = bytesOf(value);
      if (isClientPort(part, packet)) return comparePort(operation, Number.parseInt(value, 16));
      const read = readPart(part, packet).slice(0, wanted.length);
      if (operation === '==' || operation === '!=') {
        const same = equals(read, wanted);
        return operation === '==' ? same : not(same);
      }
      const order = compare(read, wanted);
      if (order === null) return 'perhaps';
      const isTrue = { '<': order < 0, '<=': order <= 0, '>': order > 0, '>=': order >= 0 }[operation];
      return isTrue ? 'yes' : 'no';
    }
    case 'ranges': {
      const { parts, ranges, isNegated } = condition;
      if (ranges === null) return 'perhaps';
      const found = ranges.map((range) => within(parts, range, packet));
      const any = found.includes('yes') ? 'yes' : found.includes('perhaps') ? 'perhaps' : 'no';
      return isNegated ? not(any) : any;
    }
  }
}

/** Reports whether each part of a key is between its bounds. */
function within(parts: readonly FilterPart[], [from, to]: FilterRange, packet: FilteredPacket): Matched {
  const [low, high] = [bytesOf(from), bytesOf(to)];
  let at = 0;
  const found = parts.map((part): Matched => {
    const read = readPart(part, packet);
    const end = at + read.length;
    const [a, b] = [low.slice(at, end), high.slice(at, end)];
    at += (read.length + 3) & ~3;
    if (isClientPort(part, packet))
      return portWithin(Buffer.from(a).readUInt16BE(), Buffer.from(b).readUInt16BE());
    if (read.includes(null))
      return equals(read, a) === 'no' && a.every((byte, i) => byte === b[i]) ? 'no' : 'perhaps';
    const [lower, upper] = [compare(read, a), compare(read, b)];
    return lower !== null && upper !== null && lower >= 0 && upper <= 0 ? 'yes' : 'no';
  });
  return all(found);
}

/** The ports that kernels choose for clients (net.ipv4.ip_local_port_range by default). */
const CLIENT_PORTS = { first: 32_768, last: 60_999 } as const;

/** Reports whether a part is the port of the client, of which only the range is known. */
const isClientPort = ({ load, mask }: FilterPart, { isReply, protocol }: FilteredPacket): boolean =>
  load.of === 'transport' &&
  load.offset === (isReply ? 2 : 0) &&
  load.length === 2 &&
  mask === null &&
  WITH_PORTS.includes(protocol);

function portWithin(from: number, to: number): Matched {
  const { first, last } = CLIENT_PORTS;
  if (to < first || from > last) return 'no';
  return from <= first && to >= last ? 'yes' : 'perhaps';
}

function comparePort(operation: FilterOperation, value: number): Matched {
  switch (operation) {
    case '==':
      return portWithin(value, value);
    case '!=':
      return not(portWithin(value, value));
    case '<':
      return portWithin(0, value - 1);
    case '<=':
      return portWithin(0, value);
    case '>':
      return portWithin(value + 1, 0xffff);
    case '>=':
      return portWithin(value, 0xffff);
  }
}

function equals(read: readonly (number | null)[], wanted: readonly number[]): Matched {
  if (wanted.some((byte, i) => typeof read[i] === 'number' && read[i] !== byte)) return 'no';
  return read.length < wanted.length || read.includes(null) ? 'perhaps' : 'yes';
}

/** Compares as big-endian numbers; null: an unknown byte decides. */
function compare(read: readonly (number | null)[], wanted: readonly number[]): number | null {
  for (const [i, byte] of wanted.entries()) {
    const own = read[i];
    if (own === null || own === undefined) return null;
    if (own !== byte) return own - byte;
  }
  return 0;
}

const bytesOf = (hex: string): number[] => [...Buffer.from(hex, 'hex')];

function readPart({ load, mask }: FilterPart, packet: FilteredPacket): (number | null)[] {
  const bytes = readLoad(load, packet);
  if (mask === null) return bytes;
  return bytesOf(mask).map((bits, i) => {
    if (bits === 0) return 0;
    const byte = bytes[i] ?? null;
    return byte === null ? null : byte & bits;
  });
}

function readLoad(load: FilterLoad, packet: FilteredPacket): (number | null)[] {
  const { family, protocol } = packet;
  switch (load.of) {
    case 'network':
    case 'transport':
      return Array.from({ length: load.length }, (_, i) => packet[load.of][load.offset + i] ?? null);
    case 'protocol':
      return padded([protocol], load.length);
    case 'family':
      return padded([NFPROTO[family]], load.length);
    case 'ethertype':
      return padded([ETHERTYPE[family] >> 8, ETHERTYPE[family] & 0xff], load.length);
    case 'state':
      return padded([packet.isReply ? STATE.established : STATE.new], load.length);
    case 'input':
    case 'output': {
      const name = packet[load.of];
      return name === null
        ? Array.from({ length: load.length }, () => null)
        : padded([...Buffer.from(name)], load.length);
    }
    case 'other':
      return Array.from({ length: load.length }, () => null);
  }
}

const padded = (bytes: readonly number[], length: number): number[] =>
  Array.from({ length }, (_, i) => bytes[i] ?? 0);
