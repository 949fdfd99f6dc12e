import type { RuleVerdict } from './attribute-writer.ts';
import type { Expression } from './batch.ts';
import { NFTA, register, VERDICT_REGISTER } from './constants.ts';

// Expressions of rules; attributes are numbered as in linux/netfilter/nf_tables.h. Registers are given as
// numbers of 32-bit registers, 0 to 15.

export const BASE = { link: 0, network: 1, transport: 2 } as const;

/** enum nft_meta_keys. */
export const META = { mark: 3, inInterface: 6, outInterface: 7, protocol: 16 } as const;

/** enum nft_ct_keys. */
export const CT = {
  state: 0,
  status: 2,
  protocolDestination: 12,
  zone: 17,
  ipv4Source: 19,
  ipv4Destination: 20,
  ipv6Source: 21,
  ipv6Destination: 22,
} as const;

const LOOKUP_INVERTED = 1;
const NUMGEN_RANDOM = 1;
const NAT_SOURCE = 0;
const NAT_DESTINATION = 1;
const REJECT_ICMP = 0;
const REJECT_TCP_RESET = 1;
const FIB_ADDRESS_TYPE = 3;
const FIB_SOURCE = 1;
const FIB_DESTINATION = 2;
const DYNSET_UPDATE = 1;
const CHECKSUM_NONE = 0;
const CHECKSUM_INTERNET = 1;

export const CMP = { equal: 0, notEqual: 1, atMost: 3, atLeast: 5 } as const;

/** Loads bytes of the packet into a register. */
export const payload =
  (base: number, offset: number, length: number, to: number): Expression =>
  (b) =>
    b.expression('payload', () => {
      b.be32(NFTA.payload.destination, register(to));
      b.be32(NFTA.payload.base, base);
      b.be32(NFTA.payload.offset, offset);
      b.be32(NFTA.payload.length, length);
    });

/** Writes bytes of the packet; `checksumAt`: offset of the Internet checksum that covers them, if any. */
export const setPayload =
  (base: number, offset: number, length: number, from: number, checksumAt: number | null): Expression =>
  (b) =>
    b.expression('payload', () => {
      b.be32(NFTA.payload.source, register(from));
      b.be32(NFTA.payload.base, base);
      b.be32(NFTA.payload.offset, offset);
      b.be32(NFTA.payload.length, length);
      b.be32(NFTA.payload.checksumType, checksumAt === null ? CHECKSUM_NONE : CHECKSUM_INTERNET);
      b.be32(NFTA.payload.checksumOffset, checksumAt ?? 0);
    });

export const meta =
  (key: number, to: number): Expression =>
  (b) =>
    b.expression('meta', () => {
      b.be32(NFTA.meta.key, key);
      b.be32(NFTA.meta.destination, register(to));
    });

export const setMeta =
  (key: number, from: number): Expression =>
  (b) =>
    b.expression('meta', () => {
      b.be32(NFTA.meta.key, key);
      b.be32(NFTA.meta.source, register(from));
    });

/** Loads a field of the conntrack entry; `original`: of the packet that opened the flow. */
export const ct =
  (key: number, to: number, original = false): Expression =>
  (b) =>
    b.expression('ct', () => {
      b.be32(NFTA.ct.key, key);
      b.be32(NFTA.ct.destination, register(to));
      if (original) b.u8(NFTA.ct.direction, 0);
    });

const ORIGINAL_DIRECTION = 0;

/**
 * Assigns the packets of the opening direction to a zone of connection tracking, in which they open a flow of their own;
 * replies are found in the default zone. Only before connection tracking, at priorities below -200.
 */
export const setOriginalZone =
  (from: number): Expression =>
  (b) =>
    b.expression('ct', () => {
      b.be32(NFTA.ct.source, register(from));
      b.be32(NFTA.ct.key, CT.zone);
      b.u8(NFTA.ct.direction, ORIGINAL_DIRECTION);
    });

const SOCKET_TRANSPARENT = 0;

/**
 * Loads whether the socket that the packet would be delivered to has IP_TRANSPARENT. Ends the rule if there is no
 * such socket.
 */
export const socketTransparent =
  (to: number): Expression =>
  (b) =>
    b.expression('socket', () => {
      b.be32(NFTA.socket.key, SOCKET_TRANSPARENT);
      b.be32(NFTA.socket.destination, register(to));
    });

/** enum nft_rt_keys. */
export const RT = { nextHop4: 1, nextHop6: 2 } as const;

/** Loads a property of the packet's route: the next hop, which is the destination itself on the same link. Only after routing. */
export const rt =
  (key: number, to: number): Expression =>
  (b) =>
    b.expression('rt', () => {
      b.be32(NFTA.rt.destination, register(to));
      b.be32(NFTA.rt.key, key);
    });

/** Loads a value into a register. */
export const immediate =
  (value: Uint8Array, to: number): Expression =>
  (b) =>
    b.expression('immediate', () => {
      b.be32(NFTA.immediate.destination, register(to));
      b.nest(NFTA.immediate.data);
      b.attribute(NFTA.data.value, value);
      b.endNest();
    });

export const compare =
  (from: number, operation: number, value: Uint8Array): Expression =>
  (b) =>
    b.expression('cmp', () => {
      b.be32(NFTA.cmp.source, register(from));
      b.be32(NFTA.cmp.operation, operation);
      b.nest(NFTA.cmp.data);
      b.attribute(NFTA.data.value, value);
      b.endNest();
    });

/** Computes `to` = (`from` & mask) ^ xor. */
export const bitwise =
  (from: number, to: number, mask: Uint8Array, xor: Uint8Array): Expression =>
  (b) =>
    b.expression('bitwise', () => {
      b.be32(NFTA.bitwise.source, register(from));
      b.be32(NFTA.bitwise.destination, register(to));
      b.be32(NFTA.bitwise.length, mask.length);
      b.nest(NFTA.bitwise.mask);
      b.attribute(NFTA.data.value, mask);
      b.endNest();
      b.nest(NFTA.bitwise.xor);
      b.attribute(NFTA.data.value, xor);
      b.endNest();
    });

export const verdict =
  (value: RuleVerdict): Expression =>
  (b) =>
    b.expression('immediate', () => {
      b.be32(NFTA.immediate.destination, VERDICT_REGISTER);
      b.nest(NFTA.immediate.data);
      b.verdict(value);
      b.endNest();
    });

/** Counts the packets that reach it; `readCounter` reads the count. */
export const counter: Expression = (b) => b.expression('counter', () => {});

/** Ends the rule unless the set contains the key (`inverted`: if the set contains it). */
export const inSet =
  (set: string, key: number, inverted = false): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(NFTA.lookup.set, set);
      b.be32(NFTA.lookup.source, register(key));
      if (inverted) b.be32(NFTA.lookup.flags, LOOKUP_INVERTED);
    });

export const fromMap =
  (map: string, key: number, to: number): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(NFTA.lookup.set, map);
      b.be32(NFTA.lookup.source, register(key));
      b.be32(NFTA.lookup.destination, register(to));
    });

/** Applies the map's verdict for the key; continues if there is none. */
export const verdictMap =
  (map: string, key: number): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(NFTA.lookup.set, map);
      b.be32(NFTA.lookup.source, register(key));
      b.be32(NFTA.lookup.destination, VERDICT_REGISTER);
    });

/** Loads a random number below `modulus`, in host order. */
export const random =
  (modulus: number, to: number): Expression =>
  (b) =>
    b.expression('numgen', () => {
      b.be32(NFTA.numgen.destination, register(to));
      b.be32(NFTA.numgen.modulus, modulus);
      b.be32(NFTA.numgen.type, NUMGEN_RANDOM);
      b.be32(NFTA.numgen.offset, 0);
    });

/** Translates the destination to the address and port in two registers. */
export const dnat =
  (family: number, address: number, port: number): Expression =>
  (b) =>
    b.expression('nat', () => {
      b.be32(NFTA.nat.type, NAT_DESTINATION);
      b.be32(NFTA.nat.family, family);
      b.be32(NFTA.nat.address, register(address));
      b.be32(NFTA.nat.port, register(port));
    });

/** Translates the source to the address in a register; the port stays, unless another connection has it. */
export const snat =
  (family: number, address: number): Expression =>
  (b) =>
    b.expression('nat', () => {
      b.be32(NFTA.nat.type, NAT_SOURCE);
      b.be32(NFTA.nat.family, family);
      b.be32(NFTA.nat.address, register(address));
    });

const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 16;

/**
 * Translates the source to the outgoing interface's address, with a port that cannot be guessed and seldom
 * collides.
 */
export const masquerade: Expression = (b) =>
  b.expression('masq', () => b.be32(NFTA.masquerade.flags, NF_NAT_RANGE_PROTO_RANDOM_FULLY));

export const rejectWithReset: Expression = (b) =>
  b.expression('reject', () => b.be32(NFTA.reject.type, REJECT_TCP_RESET));

/** Rejects with ICMP destination unreachable; `code`: the kind, of the table's family. */
export const rejectUnreachable =
  (code: number): Expression =>
  (b) =>
    b.expression('reject', () => {
      b.be32(NFTA.reject.type, REJECT_ICMP);
      b.u8(NFTA.reject.icmpCode, code);
    });

const addressType =
  (to: number, flags: number): Expression =>
  (b) =>
    b.expression('fib', () => {
      b.be32(NFTA.fib.destination, register(to));
      b.be32(NFTA.fib.result, FIB_ADDRESS_TYPE);
      b.be32(NFTA.fib.flags, flags);
    });

/**
 * Compares the type of the destination's route in the tables of this node (RTN_LOCAL: an address of this
 * node).
 */
export const destinationType = (to: number): Expression => addressType(to, FIB_DESTINATION);

/**
 * Compares the type of the source's route in the tables of this node (RTN_LOCAL: an address of this node).
 */
export const sourceType = (to: number): Expression => addressType(to, FIB_SOURCE);

const RTN_LOCAL = 2;

/** Ends the rule unless the destination is an address of this node. */
export const destinationIsLocal: readonly Expression[] = [
  destinationType(0),
  compare(0, CMP.equal, Uint8Array.of(RTN_LOCAL, 0, 0, 0)),
];

/**
 * The form of a rule that hands packets to a process: nf_tables' own expression, or, in kernels without it, xtables'
 * target.
 */
export type QueueForm = 'queue' | 'NFQUEUE';
const QUEUE_BYPASS = 1;

/** Hands the packet to the process that has bound this queue; without one, the packet is accepted. */
export const queue =
  (number: number, form: QueueForm): Expression =>
  (b) => {
    const [high, low] = [number >> 8, number & 0xff];
    if (form === 'queue') {
      b.expression('queue', () => {
        b.attribute(NFTA.queue.number, Uint8Array.of(high, low));
        b.attribute(NFTA.queue.total, Uint8Array.of(0, 1));
        b.attribute(NFTA.queue.flags, Uint8Array.of(0, QUEUE_BYPASS));
      });
      return;
    }
    b.expression('target', () => {
      b.text(NFTA.target.name, 'NFQUEUE');
      b.be32(NFTA.target.revision, 3);
      // struct xt_NFQ_info_v3, in host order, padded as all targets are.
      b.attribute(NFTA.target.info, Uint8Array.of(low, high, 1, 0, QUEUE_BYPASS, 0, 0, 0));
    });
  };

/** Adds an element, or refreshes its timeout (and keeps its data). */
export const updateMap =
  (map: string, key: number, data: number, timeoutMs: number): Expression =>
  (b) =>
    b.expression('dynset', () => {
      b.text(NFTA.dynset.set, map);
      b.be32(NFTA.dynset.operation, DYNSET_UPDATE);
      b.be32(NFTA.dynset.key, register(key));
      b.be32(NFTA.dynset.data, register(data));
      b.be64(NFTA.dynset.timeout, timeoutMs);
    });

/** Adds an element, or refreshes its timeout; ends the rule if the set is full. */
export const updateSet =
  (set: string, key: number, timeoutMs: number): Expression =>
  (b) =>
    b.expression('dynset', () => {
      b.text(NFTA.dynset.set, set);
      b.be32(NFTA.dynset.operation, DYNSET_UPDATE);
      b.be32(NFTA.dynset.key, register(key));
      b.be64(NFTA.dynset.timeout, timeoutMs);
    });

/** Counts the packets of this key in the element of the set, which it adds or refreshes; ends the rule if the set is full. */
export const countPackets =
  (set: string, key: number, timeoutMs: number): Expression =>
  (b) =>
    b.expression('dynset', () => {
      b.text(NFTA.dynset.set, set);
      b.be32(NFTA.dynset.operation, DYNSET_UPDATE);
      b.be32(NFTA.dynset.key, register(key));
      b.be64(NFTA.dynset.timeout, timeoutMs);
      b.expression('counter', () => {}, NFTA.dynset.expression);
    });

// enum nft_limit_type, enum nft_limit_flags
const LIMIT_PACKETS = 0;
const LIMIT_INVERTED = 1;
const ONE_SECOND = 1;

export interface PacketRate {
  readonly perSecond: number;
  /** Packets at once, above which `perSecond` applies. */
  readonly burst: number;
}

/**
 * Ends the rule unless the packets of this key exceed the rate: each element of the set has a token bucket of its own. Adds the
 * element, or refreshes its timeout; ends the rule, too, if the set is full.
 */
export const exceedsRate =
  (set: string, key: number, { perSecond, burst }: PacketRate, timeoutMs: number): Expression =>
  (b) =>
    b.expression('dynset', () => {
      b.text(NFTA.dynset.set, set);
      b.be32(NFTA.dynset.operation, DYNSET_UPDATE);
      b.be32(NFTA.dynset.key, register(key));
      b.be64(NFTA.dynset.timeout, timeoutMs);
      b.expression(
        'limit',
        () => {
          b.be64(NFTA.limit.rate, perSecond);
          b.be64(NFTA.limit.unit, ONE_SECOND);
          b.be32(NFTA.limit.burst, burst);
          b.be32(NFTA.limit.type, LIMIT_PACKETS);
          b.be32(NFTA.limit.flags, LIMIT_INVERTED);
        },
        NFTA.dynset.expression,
      );
    });
