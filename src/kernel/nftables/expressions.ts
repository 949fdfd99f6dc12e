import type { RuleVerdict } from './attribute-writer.ts';
import type { Expression } from './batch.ts';
import { register, VERDICT_REGISTER } from './constants.ts';

// Expressions of rules, as linux/netfilter/nf_tables.h numbers their attributes. Registers are given as numbers of
// 32-bit registers, 0 to 15.

export const BASE = { network: 1, transport: 2 } as const;

/** enum nft_meta_keys. */
export const META = { mark: 3, inInterface: 6, outInterface: 7, protocol: 16 } as const;

/** enum nft_ct_keys. */
export const CT = {
  state: 0,
  status: 2,
  protocolDestination: 12,
  ipv4Source: 19,
  ipv4Destination: 20,
  ipv6Source: 21,
  ipv6Destination: 22,
} as const;

export const CMP = { equal: 0, notEqual: 1 } as const;

/** Reads bytes of the packet. */
export const payload =
  (base: number, offset: number, length: number, to: number): Expression =>
  (b) =>
    b.expression('payload', () => {
      b.be32(1, register(to));
      b.be32(2, base);
      b.be32(3, offset);
      b.be32(4, length);
    });

export const meta =
  (key: number, to: number): Expression =>
  (b) =>
    b.expression('meta', () => {
      b.be32(2, key);
      b.be32(1, register(to));
    });

export const setMeta =
  (key: number, from: number): Expression =>
  (b) =>
    b.expression('meta', () => {
      b.be32(2, key);
      b.be32(3, register(from));
    });

/** Conntrack; `original`: of the packet that opened the flow. */
export const ct =
  (key: number, to: number, original = false): Expression =>
  (b) =>
    b.expression('ct', () => {
      b.be32(2, key);
      b.be32(1, register(to));
      if (original) b.u8(3, 0);
    });

export const compare =
  (from: number, operation: number, value: Uint8Array): Expression =>
  (b) =>
    b.expression('cmp', () => {
      b.be32(1, register(from));
      b.be32(2, operation);
      b.nest(3);
      b.attribute(1, value);
      b.endNest();
    });

/** `to` = (`from` & mask) ^ xor. */
export const bitwise =
  (from: number, to: number, mask: Uint8Array, xor: Uint8Array): Expression =>
  (b) =>
    b.expression('bitwise', () => {
      b.be32(1, register(from));
      b.be32(2, register(to));
      b.be32(3, mask.length);
      b.nest(4);
      b.attribute(1, mask);
      b.endNest();
      b.nest(5);
      b.attribute(1, xor);
      b.endNest();
    });

export const verdict =
  (value: RuleVerdict): Expression =>
  (b) =>
    b.expression('immediate', () => {
      b.be32(1, VERDICT_REGISTER);
      b.nest(2);
      b.verdict(value);
      b.endNest();
    });

/** Ends the rule unless the set has the key (`inverted`: unless it has not). */
export const inSet =
  (set: string, key: number, inverted = false): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(1, set);
      b.be32(2, register(key));
      if (inverted) b.be32(5, 1);
    });

export const fromMap =
  (map: string, key: number, to: number): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(1, map);
      b.be32(2, register(key));
      b.be32(3, register(to));
    });

/** Takes the verdict that the map has for the key; goes on where it has none. */
export const verdictMap =
  (map: string, key: number): Expression =>
  (b) =>
    b.expression('lookup', () => {
      b.text(1, map);
      b.be32(2, register(key));
      b.be32(3, VERDICT_REGISTER);
    });

/** A random number below `modulus`, in host order. */
export const random =
  (modulus: number, to: number): Expression =>
  (b) =>
    b.expression('numgen', () => {
      b.be32(1, register(to));
      b.be32(2, modulus);
      b.be32(3, 1);
      b.be32(4, 0);
    });

/** Destination NAT to the address and port in two registers. */
export const dnat =
  (family: number, address: number, port: number): Expression =>
  (b) =>
    b.expression('nat', () => {
      b.be32(1, 1);
      b.be32(2, family);
      b.be32(3, register(address));
      b.be32(5, register(port));
    });

const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 16;

/** Source NAT to the outgoing interface's address, with a port that cannot be guessed and seldom collides. */
export const masquerade: Expression = (b) =>
  b.expression('masq', () => b.be32(1, NF_NAT_RANGE_PROTO_RANDOM_FULLY));

export const rejectWithReset: Expression = (b) => b.expression('reject', () => b.be32(1, 1));

/** ICMP port unreachable. `code`: 3 for IPv4, 4 for IPv6. */
export const rejectPort =
  (code: number): Expression =>
  (b) =>
    b.expression('reject', () => {
      b.be32(1, 0);
      b.u8(2, code);
    });

const RTN_LOCAL = 2;

/** Ends the rule unless the destination is an address of this node. */
export const destinationIsLocal: readonly Expression[] = [
  (b) =>
    b.expression('fib', () => {
      b.be32(1, register(0));
      b.be32(2, 3);
      b.be32(3, 2);
    }),
  compare(0, CMP.equal, Uint8Array.of(RTN_LOCAL, 0, 0, 0)),
];

/** Adds an element, or refreshes its timeout (and keeps its data). */
export const updateMap =
  (map: string, key: number, data: number, timeoutMs: number): Expression =>
  (b) =>
    b.expression('dynset', () => {
      b.text(1, map);
      b.be32(3, 1);
      b.be32(4, register(key));
      b.be32(5, register(data));
      b.be64(6, timeoutMs);
    });
