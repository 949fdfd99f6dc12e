import type { IPFamily } from '../../lib/address.ts';
import { PROTOCOL_NUMBER } from '../protocol-numbers.ts';

/** NF_INET_NUMHOOKS (linux/netfilter.h). */
export const HOOKS = 5;
/** Names of the built-in chains, by hook number (enum nf_inet_hooks). */
export const HOOK_CHAINS = ['PREROUTING', 'INPUT', 'FORWARD', 'OUTPUT', 'POSTROUTING'] as const;

/** struct xt_entry_match and xt_entry_target (linux/netfilter/x_tables.h): u16 size, char name[29], u8 revision. */
export const EXTENSION = { name: 2, nameRoom: 29, revision: 31, bytes: 32 } as const;

/** Bytes of struct xt_standard_target, and of struct xt_error_target with its name at EXTENSION.bytes. */
export const STANDARD_BYTES = 40;
export const ERROR_BYTES = 64;
export const ERROR_NAME_ROOM = 30;

/** The verdict of the last entry of a user's chain: back to the chain that jumped here. */
export const RETURN = -5;

/** NF_DROP and the others, as xt_standard_target.verdict has them: -verdict - 1. */
export const VERDICTS: ReadonlyMap<string, number> = new Map([
  ['DROP', -1],
  ['ACCEPT', -2],
  ['QUEUE', -4],
  ['RETURN', RETURN],
]);

/** ipt_ip.invflags and ip6t_ip6.invflags. */
export const INVERTED = { inInterface: 0x01, source: 0x08, destination: 0x10 } as const;

/** Offsets in struct ipt_entry (linux/netfilter_ipv4/ip_tables.h) or ip6t_entry (linux/netfilter_ipv6/ip6_tables.h). */
export interface Layout {
  readonly addressBytes: number;
  readonly source: number;
  readonly destination: number;
  readonly sourceMask: number;
  readonly destinationMask: number;
  readonly inInterface: number;
  readonly inMask: number;
  readonly protocol: number;
  /** The type of service, which IPv4 has not. */
  readonly flags: number;
  readonly inverted: number;
  /** u16 target_offset, u16 next_offset. */
  readonly target: number;
  readonly next: number;
  readonly counters: number;
  readonly bytes: number;
  /** IPT_F_GOTO, IP6T_F_GOTO. */
  readonly goto: number;
  /** IP6T_F_PROTO: set by every rule that names a protocol; none in IPv4. */
  readonly protocolFlag: number;
}

export const LAYOUT: Readonly<Record<IPFamily, Layout>> = {
  ipv4: {
    addressBytes: 4,
    source: 0,
    destination: 4,
    sourceMask: 8,
    destinationMask: 12,
    inInterface: 16,
    inMask: 48,
    protocol: 80,
    flags: 82,
    inverted: 83,
    target: 88,
    next: 90,
    counters: 96,
    bytes: 112,
    goto: 0x02,
    protocolFlag: 0,
  },
  ipv6: {
    addressBytes: 16,
    source: 0,
    destination: 16,
    sourceMask: 32,
    destinationMask: 48,
    inInterface: 64,
    inMask: 96,
    protocol: 128,
    flags: 131,
    inverted: 132,
    target: 140,
    next: 142,
    counters: 152,
    bytes: 168,
    goto: 0x04,
    protocolFlag: 0x01,
  },
};

/** Protocols with the names that iptables-save prints. */
export const PROTOCOLS: ReadonlyMap<string, number> = new Map(
  Object.entries(PROTOCOL_NUMBER).map(([name, number]) => [name.toLowerCase(), number]),
);
