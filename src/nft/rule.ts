import type { RuleVerdict } from '../kernel/nftables/attribute-writer.ts';
import type { Expression } from '../kernel/nftables/batch.ts';
import { DATA_TYPE, type DataType, NFPROTO, type TableFamily } from '../kernel/nftables/constants.ts';
import {
  BASE,
  bitwise,
  CMP,
  CT,
  compare,
  counter as counterExpression,
  countPackets,
  ct,
  destinationType,
  dnat,
  exceedsRate,
  fromMap,
  immediate,
  inSet as lookup,
  META,
  masquerade as masqueradeExpression,
  meta,
  type PacketRate,
  payload,
  type QueueForm,
  queue as queueExpression,
  RT,
  random,
  rejectUnreachable,
  rejectWithReset,
  rt,
  setMeta,
  setOriginalZone,
  setPayload,
  snat,
  socketTransparent,
  sourceType,
  updateMap,
  updateSet,
  verdict as verdictExpression,
  verdictMap,
} from '../kernel/nftables/expressions.ts';
import type { IPFamily } from '../lib/address.ts';

const { ipv4Address, ipv6Address, etherAddress, etherHeader, etherType } = DATA_TYPE;
const { protocol, port, mark, interfaceName, number, byte } = DATA_TYPE;

interface FieldSource {
  readonly type: DataType;
  /** In the notation of `nft`. */
  readonly text: string;
  readonly load: (to: number) => Expression;
}

const field = (type: DataType, text: string, load: (to: number) => Expression): FieldSource => ({
  type,
  text,
  load,
});

/** The fields of a packet and its flow that rules can read. `ct.original.…`: of the packet that opened the flow. */
export const FIELDS = {
  'ether.daddr': field(etherAddress, 'ether daddr', (to) => payload(BASE.link, 0, 6, to)),
  'ether.saddr': field(etherAddress, 'ether saddr', (to) => payload(BASE.link, 6, 6, to)),
  // Both MACs and the type in one load.
  'ether.header': field(etherHeader, '@ll,0,112', (to) => payload(BASE.link, 0, 14, to)),
  // Of a frame with a VLAN tag, the tag's.
  'ether.type': field(etherType, 'ether type', (to) => payload(BASE.link, 12, 2, to)),
  // Hardware and protocol type and the lengths of their addresses.
  'arp.format': field(etherAddress, '@nh,0,48', (to) => payload(BASE.network, 0, 6, to)),
  'arp.saddr.ether': field(etherAddress, 'arp saddr ether', (to) => payload(BASE.network, 8, 6, to)),
  'arp.saddr.ip': field(ipv4Address, 'arp saddr ip', (to) => payload(BASE.network, 14, 4, to)),
  'ip.protocol': field(protocol, 'ip protocol', (to) => payload(BASE.network, 9, 1, to)),
  'ip6.nexthdr': field(protocol, 'ip6 nexthdr', (to) => payload(BASE.network, 6, 1, to)),
  'icmp.type': field(byte, 'icmp type', (to) => payload(BASE.transport, 0, 1, to)),
  // The destination of the packet that an ICMP error is about.
  'icmp.about.ip.daddr': field(ipv4Address, '@th,192,32', (to) => payload(BASE.transport, 24, 4, to)),
  'icmp.about.ip6.daddr': field(ipv6Address, '@th,256,128', (to) => payload(BASE.transport, 32, 16, to)),
  // Directly behind the IPv6 header.
  'icmpv6.type': field(byte, '@nh,320,8', (to) => payload(BASE.network, 40, 1, to)),
  'nd.target': field(ipv6Address, '@nh,384,128', (to) => payload(BASE.network, 48, 16, to)),
  // Inside VXLAN: behind the headers of UDP and VXLAN.
  'vxlan.ether.type': field(etherType, '@th,224,16', (to) => payload(BASE.transport, 28, 2, to)),
  'vxlan.ip.saddr': field(ipv4Address, '@th,336,32', (to) => payload(BASE.transport, 42, 4, to)),
  'vxlan.ip6.saddr': field(ipv6Address, '@th,304,128', (to) => payload(BASE.transport, 38, 16, to)),
  'ip.saddr': field(ipv4Address, 'ip saddr', (to) => payload(BASE.network, 12, 4, to)),
  'ip.daddr': field(ipv4Address, 'ip daddr', (to) => payload(BASE.network, 16, 4, to)),
  'ip6.saddr': field(ipv6Address, 'ip6 saddr', (to) => payload(BASE.network, 8, 16, to)),
  'ip6.daddr': field(ipv6Address, 'ip6 daddr', (to) => payload(BASE.network, 24, 16, to)),
  'ip6.daddr.start': field(ipv4Address, '@nh,192,32', (to) => payload(BASE.network, 24, 4, to)),
  // The header's first two bytes; DSCP_MASK selects the code point.
  'ip.dscp': field(port, 'ip dscp', (to) => payload(BASE.network, 0, 2, to)),
  'ip6.dscp': field(port, 'ip6 dscp', (to) => payload(BASE.network, 0, 2, to)),
  'ip.ttl': field(byte, 'ip ttl', (to) => payload(BASE.network, 8, 1, to)),
  'ip6.hoplimit': field(byte, 'ip6 hoplimit', (to) => payload(BASE.network, 7, 1, to)),
  'th.sport': field(port, 'th sport', (to) => payload(BASE.transport, 0, 2, to)),
  'udp.length': field(port, 'udp length', (to) => payload(BASE.transport, 4, 2, to)),
  // The payload of the datagrams by which a process adds elements to sets (`remember`), behind the header of UDP.
  'note.token': field(ipv6Address, '@th,64,128', (to) => payload(BASE.transport, 8, 16, to)),
  'note.number': field(number, '@th,192,32', (to) => payload(BASE.transport, 24, 4, to)),
  'note.ip.saddr': field(ipv4Address, '@th,224,32', (to) => payload(BASE.transport, 28, 4, to)),
  'note.ip.daddr': field(ipv4Address, '@th,256,32', (to) => payload(BASE.transport, 32, 4, to)),
  'note.ip6.saddr': field(ipv6Address, '@th,224,128', (to) => payload(BASE.transport, 28, 16, to)),
  'note.ip6.daddr': field(ipv6Address, '@th,352,128', (to) => payload(BASE.transport, 44, 16, to)),
  'th.dport': field(port, 'th dport', (to) => payload(BASE.transport, 2, 2, to)),
  'tcp.flags': field(byte, 'tcp flags', (to) => payload(BASE.transport, 13, 1, to)),
  'meta.l4proto': field(protocol, 'meta l4proto', (to) => meta(META.protocol, to)),
  'meta.mark': field(mark, 'meta mark', (to) => meta(META.mark, to)),
  'meta.iifname': field(interfaceName, 'iifname', (to) => meta(META.inInterface, to)),
  'meta.oifname': field(interfaceName, 'oifname', (to) => meta(META.outInterface, to)),
  'ct.state': field(number, 'ct state', (to) => ct(CT.state, to)),
  'ct.status': field(number, 'ct status', (to) => ct(CT.status, to)),
  'ct.original.ip.saddr': field(ipv4Address, 'ct original ip saddr', (to) => ct(CT.ipv4Source, to, true)),
  'ct.original.ip.daddr': field(ipv4Address, 'ct original ip daddr', (to) =>
    ct(CT.ipv4Destination, to, true),
  ),
  'ct.original.ip6.saddr': field(ipv6Address, 'ct original ip6 saddr', (to) => ct(CT.ipv6Source, to, true)),
  'ct.original.ip6.daddr': field(ipv6Address, 'ct original ip6 daddr', (to) =>
    ct(CT.ipv6Destination, to, true),
  ),
  'ct.original.proto-dst': field(port, 'ct original proto-dst', (to) => ct(CT.protocolDestination, to, true)),
  'rt.ip.nexthop': field(ipv4Address, 'rt ip nexthop', (to) => rt(RT.nextHop4, to)),
  'rt.ip6.nexthop': field(ipv6Address, 'rt ip6 nexthop', (to) => rt(RT.nextHop6, to)),
  'fib.daddr.type': field(number, 'fib daddr type', destinationType),
  'fib.saddr.type': field(number, 'fib saddr type', sourceType),
  'socket.transparent': field(byte, 'socket transparent', socketTransparent),
} as const satisfies Record<string, FieldSource>;

export type Field = keyof typeof FIELDS;

/** Part of a lookup's key: a field, or a random number below `random` for each packet. */
export type KeyPart = Field | { readonly random: number };

/** One statement of a rule, as data. A rule's statements run in order until one does not match. */
export type Statement =
  | {
      readonly kind: 'match';
      readonly field: Field;
      readonly operation: '==' | '!=';
      /** Bytes in register encoding. If shorter than the field, only the leading bytes are compared. */
      readonly value: Uint8Array;
      /** Only these bits are compared. */
      readonly mask: Uint8Array | null;
    }
  | {
      readonly kind: 'lookup';
      readonly key: readonly KeyPart[];
      readonly set: string;
      readonly negated: boolean;
    }
  /** Applies the map's verdict for the key; continues if there is none. */
  | { readonly kind: 'vmap'; readonly key: readonly KeyPart[]; readonly map: string }
  /** Destination NAT to the map's address and port for the key; continues if there is none. */
  | { readonly kind: 'dnat'; readonly key: readonly KeyPart[]; readonly map: string }
  /** Source NAT to the map's address for the key; continues if there is none. */
  | { readonly kind: 'snat'; readonly key: readonly KeyPart[]; readonly map: string }
  /** Source NAT to the packet's own source: no later rule translates it. */
  | { readonly kind: 'keep-source' }
  /** Keeps the bits `keep` of the mark, and sets the bits `set`. */
  | { readonly kind: 'mark'; readonly keep: number; readonly set: number }
  /** Sets the differentiated services code point. */
  | { readonly kind: 'dscp'; readonly value: number }
  | { readonly kind: 'mark-from'; readonly key: readonly KeyPart[]; readonly map: string }
  /** Adds an element to a map, or refreshes its timeout and keeps its data. */
  | {
      readonly kind: 'update';
      readonly map: string;
      readonly key: readonly Field[];
      readonly data: readonly Field[];
      readonly timeoutMs: number;
    }
  /** Adds the key to a dynamic set, or refreshes its timeout. The rule ends if the set is full. */
  | {
      readonly kind: 'remember';
      readonly set: string;
      readonly key: readonly Field[];
      readonly timeoutMs: number;
    }
  /**
   * Matches the packets of a key above its rate. The rule adds an element for the key to the dynamic set, and does not match if
   * the set is full.
   */
  | {
      readonly kind: 'over-rate';
      readonly set: string;
      readonly key: readonly Field[];
      readonly rate: PacketRate;
      readonly timeoutMs: number;
    }
  /** Counts the packets of a key in the dynamic set. The rule ends if the set is full. */
  | {
      readonly kind: 'count-key';
      readonly set: string;
      readonly key: readonly Field[];
      readonly timeoutMs: number;
    }
  /**
   * Assigns the flow's opening direction to a zone of connection tracking, before connection tracking; replies are found
   * in the default zone.
   */
  | { readonly kind: 'zone'; readonly zone: number }
  | { readonly kind: 'counter' }
  | { readonly kind: 'verdict'; readonly verdict: RuleVerdict }
  /** Source NAT to the address of the outgoing device, with a random port. */
  | { readonly kind: 'masquerade' }
  /** Hands the packet to the process that has bound the queue; accepts it if there is none. */
  | { readonly kind: 'queue'; readonly number: number; readonly form: QueueForm }
  | { readonly kind: 'reject'; readonly with: 'tcp-reset' | 'port-unreachable' | 'host-unreachable' };

export type Rule = readonly Statement[];

type Value = Uint8Array | number;

/** Matches if the field, masked with `mask`, has this value. Numbers: in host order. */
export const is = (field: Field, value: Value, mask: Value | null = null): Statement =>
  match('==', field, value, mask);

/** Matches unless the field has this value. */
export const isNot = (field: Field, value: Value, mask: Value | null = null): Statement =>
  match('!=', field, value, mask);

/** Matches if any of these bits is set. */
export const hasAny = (field: Field, bits: number): Statement => isNot(field, 0, bits);
export const hasNone = (field: Field, bits: number): Statement => is(field, 0, bits);

export const inSet = (set: string, ...key: readonly KeyPart[]): Statement => ({
  kind: 'lookup',
  key,
  set,
  negated: false,
});
export const notInSet = (set: string, ...key: readonly KeyPart[]): Statement => ({
  kind: 'lookup',
  key,
  set,
  negated: true,
});
export const vmap = (map: string, ...key: readonly KeyPart[]): Statement => ({ kind: 'vmap', key, map });
export const dnatTo = (map: string, ...key: readonly KeyPart[]): Statement => ({ kind: 'dnat', key, map });
export const snatTo = (map: string, ...key: readonly KeyPart[]): Statement => ({ kind: 'snat', key, map });
export const keepSource: Statement = { kind: 'keep-source' };
export const setMark = (keep: number, set: number): Statement => ({
  kind: 'mark',
  keep: keep >>> 0,
  set: set >>> 0,
});
/** The differentiated services code point in the first two bytes of a header. */
const DSCP_MASK: Readonly<Record<IPFamily, Uint8Array>> = {
  ipv4: Uint8Array.of(0, 0xfc),
  ipv6: Uint8Array.of(0x0f, 0xc0),
};
const dscpBytes = (value: number, family: IPFamily): Uint8Array =>
  family === 'ipv4' ? Uint8Array.of(0, value << 2) : Uint8Array.of(value >> 2, (value & 3) << 6);
/** Offset of the header's checksum; IPv6 has none. */
const CHECKSUM_AT: Readonly<Record<IPFamily, number | null>> = { ipv4: 10, ipv6: null };

export const hasDscp = (value: number, family: IPFamily): Statement =>
  is(family === 'ipv4' ? 'ip.dscp' : 'ip6.dscp', dscpBytes(value, family), DSCP_MASK[family]);
export const setDscp = (value: number): Statement => ({ kind: 'dscp', value });
export const markFrom = (map: string, ...key: readonly KeyPart[]): Statement => ({
  kind: 'mark-from',
  key,
  map,
});
/** Matches the packets of a key above its rate; elements expire after `timeoutMs` without packets. */
export const overRate = (
  set: string,
  key: readonly Field[],
  rate: PacketRate,
  timeoutMs: number,
): Statement => ({ kind: 'over-rate', set, key, rate, timeoutMs });
/** Adds the key to a dynamic set, or refreshes its timeout. */
export const remember = (set: string, key: readonly Field[], timeoutMs: number): Statement => ({
  kind: 'remember',
  set,
  key,
  timeoutMs,
});
/** Counts the packets of a key in a dynamic set; elements expire after `timeoutMs` without packets. */
export const countKey = (set: string, key: readonly Field[], timeoutMs: number): Statement => ({
  kind: 'count-key',
  set,
  key,
  timeoutMs,
});
export const setZone = (zone: number): Statement => ({ kind: 'zone', zone });
/** Counts packets; `Table.packets` reads it. */
export const counter: Statement = { kind: 'counter' };
export const verdict = (value: RuleVerdict): Statement => ({ kind: 'verdict', verdict: value });
export const accept = verdict('accept');
export const drop = verdict('drop');
export const goBack = verdict('return');
export const jump = (chain: string): Statement => verdict({ jump: chain });
export const goto = (chain: string): Statement => verdict({ goto: chain });
export const masquerade: Statement = { kind: 'masquerade' };
export const queue = (number: number, form: QueueForm): Statement => ({ kind: 'queue', number, form });
export const resetTcp: Statement = { kind: 'reject', with: 'tcp-reset' };
export const rejectPacket: Statement = { kind: 'reject', with: 'port-unreachable' };
export const rejectHost: Statement = { kind: 'reject', with: 'host-unreachable' };
/** Matches if the destination is an address of this node (RTN_LOCAL). */
export const destinationIsLocal: Statement = is('fib.daddr.type', 2);
export const sourceIsLocal: Statement = is('fib.saddr.type', 2);
export const sourceIsElsewhere: Statement = isNot('fib.saddr.type', 2);
/** Matches if a socket of this node would receive the packet, except sockets with IP_TRANSPARENT. */
export const hasSocket: Statement = is('socket.transparent', 0);
/** Linux: IPS_DST_NAT, NF_CT_STATE_BIT(IP_CT_NEW). */
export const IPS_DST_NAT = 0x20;
export const CT_NEW = 8;

/** Returns the fields of one family's addresses. */
export const addressFields = (family: IPFamily) =>
  family === 'ipv4'
    ? ({
        source: 'ip.saddr',
        destination: 'ip.daddr',
        originalSource: 'ct.original.ip.saddr',
        originalDestination: 'ct.original.ip.daddr',
        nextHop: 'rt.ip.nexthop',
      } as const)
    : ({
        source: 'ip6.saddr',
        destination: 'ip6.daddr',
        originalSource: 'ct.original.ip6.saddr',
        originalDestination: 'ct.original.ip6.daddr',
        nextHop: 'rt.ip6.nexthop',
      } as const);

/** Returns the types of a set's key or data for these fields. */
export const typesOf = (...fields: readonly Field[]): DataType[] => fields.map((name) => FIELDS[name].type);

/** Returns the name of a device in register encoding. `length` 16 (IFNAMSIZ): the whole name; else a prefix of this length. */
export function deviceName(name: string, length = 16): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < Math.min(name.length, length); i++) bytes[i] = name.charCodeAt(i);
  return bytes;
}

function match(operation: '==' | '!=', name: Field, value: Value, mask: Value | null): Statement {
  const { length } = FIELDS[name].type;
  const bytes = (one: Value) => (typeof one === 'number' ? hostOrder(one, length) : one);
  return {
    kind: 'match',
    field: name,
    operation,
    value: bytes(value),
    mask: mask === null ? null : bytes(mask),
  };
}

/** Returns a number in register encoding: host byte order (little-endian). */
function hostOrder(value: number, length: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value >>> 0, true);
  return bytes.subarray(0, Math.min(length, 4));
}

const wordsOf = (part: KeyPart): number =>
  typeof part === 'string' ? (FIELDS[part].type.length + 3) >> 2 : 1;

/** Returns the number of 32-bit registers of a key. */
const keyWords = (key: readonly KeyPart[]): number => key.reduce((sum, part) => sum + wordsOf(part), 0);

/** Compiles a rule to expressions for tables of one family: keys are loaded from register 0 on, data after the key. */
export function compileRule(rule: Rule, family: TableFamily): Expression[] {
  return rule.flatMap((statement) => compileStatement(statement, family));
}

function load(key: readonly KeyPart[], from = 0): Expression[] {
  let at = from;
  return key.map((part) => {
    const to = at;
    at += wordsOf(part);
    return typeof part === 'string' ? FIELDS[part].load(to) : random(part.random, to);
  });
}

/** RFC 792, RFC 4443: the codes of ICMP destination unreachable. */
const UNREACHABLE = {
  'port-unreachable': { ipv4: 3, ipv6: 4 },
  'host-unreachable': { ipv4: 1, ipv6: 3 },
} as const;

function compileStatement(statement: Statement, tableFamily: TableFamily): Expression[] {
  // Invariant: tables of the family netdev have no statements that depend on the family of IP.
  const family: IPFamily = tableFamily === 'netdev' ? 'ipv4' : tableFamily;
  switch (statement.kind) {
    case 'match': {
      const { field: name, operation, value, mask } = statement;
      return [
        FIELDS[name].load(0),
        ...(mask ? [bitwise(0, 0, mask, new Uint8Array(mask.length))] : []),
        compare(0, operation === '==' ? CMP.equal : CMP.notEqual, value),
      ];
    }
    case 'lookup':
      return [...load(statement.key), lookup(statement.set, 0, statement.negated)];
    case 'vmap':
      return [...load(statement.key), verdictMap(statement.map, 0)];
    case 'dnat': {
      const data = keyWords(statement.key);
      const address = family === 'ipv4' ? 1 : 4;
      return [
        ...load(statement.key),
        fromMap(statement.map, 0, data),
        dnat(NFPROTO[family], data, data + address),
      ];
    }
    case 'snat': {
      const data = keyWords(statement.key);
      return [...load(statement.key), fromMap(statement.map, 0, data), snat(NFPROTO[family], data)];
    }
    case 'keep-source':
      return [FIELDS[addressFields(family).source].load(0), snat(NFPROTO[family], 0)];
    case 'mark':
      return [
        meta(META.mark, 0),
        bitwise(0, 0, hostOrder(statement.keep, 4), hostOrder(statement.set, 4)),
        setMeta(META.mark, 0),
      ];
    case 'dscp':
      return [
        payload(BASE.network, 0, 2, 0),
        bitwise(
          0,
          0,
          DSCP_MASK[family].map((byte) => ~byte & 0xff),
          dscpBytes(statement.value, family),
        ),
        setPayload(BASE.network, 0, 2, 0, CHECKSUM_AT[family]),
      ];
    case 'mark-from': {
      const data = keyWords(statement.key);
      return [...load(statement.key), fromMap(statement.map, 0, data), setMeta(META.mark, data)];
    }
    case 'update': {
      const data = keyWords(statement.key);
      return [
        ...load(statement.key),
        ...load(statement.data, data),
        updateMap(statement.map, 0, data, statement.timeoutMs),
      ];
    }
    case 'remember':
      return [...load(statement.key), updateSet(statement.set, 0, statement.timeoutMs)];
    case 'over-rate':
      return [...load(statement.key), exceedsRate(statement.set, 0, statement.rate, statement.timeoutMs)];
    case 'count-key':
      return [...load(statement.key), countPackets(statement.set, 0, statement.timeoutMs)];
    case 'zone':
      return [immediate(hostOrder(statement.zone, 2), 0), setOriginalZone(0)];
    case 'counter':
      return [counterExpression];
    case 'verdict':
      return [verdictExpression(statement.verdict)];
    case 'masquerade':
      return [masqueradeExpression];
    case 'queue':
      return [queueExpression(statement.number, statement.form)];
    case 'reject':
      return [
        statement.with === 'tcp-reset'
          ? rejectWithReset
          : rejectUnreachable(UNREACHABLE[statement.with][family]),
      ];
  }
}
