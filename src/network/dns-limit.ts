import type { NetnsRef } from '../kernel/netns.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import type { PacketRate } from '../kernel/nftables/expressions.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { familyOf, formatAddress, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { be16Port, wordsOfAddress } from '../nft/encoding.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { addressFields, counter, countKey, drop, goto, inSet, is, overRate, typesOf } from '../nft/rule.ts';
import { elements, group, type TableSpec } from '../nft/spec.ts';

/** The table of each family (`ip` and `ip6`). */
const DNS_LIMIT_TABLE = 'fairlead-dns-limit';

/** The name servers of a node, and the queries and connections of one client. */
export interface DnsLimits {
  /** Addresses of both families. */
  readonly servers: readonly string[];
  readonly port: number;
  readonly perClient: PacketRate;
  /** New connections over TCP of one client. */
  readonly connectionsPerClient: PacketRate;
  /** Clients that are remembered; the kernel does not limit further ones. */
  readonly maxClients: number;
}

/**
 * Drops the queries of a client that sends too many before they reach the name server's socket: the process would spend as
 * much time on reading them as on a few answers, and a full socket drops the queries of all clients. The same for connections: the
 * process accepts all that wait at once, also those that their client has reset.
 */
export interface DnsLimit {
  /** Programs the limit. Throws NftRefusal if the kernel has no expression `limit`. */
  write(limits: DnsLimits): void;
  /** Returns the packets dropped since the rules were opened. */
  dropped(): number;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  close(): void;
}

export interface DnsLimitOptions {
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

const FAMILIES = ['ipv4', 'ipv6'] as const;
/** RFC 9293. */
const SYN = Uint8Array.of(0x02);
const SYN_ACK = Uint8Array.of(0x12);
const DROPPING_CHAIN = 'over-limit';
const LIMITED = 'limited';
const SERVERS = 'servers';
/** A bucket is full again after a shorter time: to forget it does not give its client more. */
const TIMEOUT_MS = 5000;
/** How long a client is counted and named after its last dropped query: longer than the interval of its readers. */
const NAMED_MS = 20_000;

export function openDnsLimit(options: DnsLimitOptions): DnsLimit {
  const tables = openTables(options);
  const counted = () =>
    FAMILIES.reduce((sum, family) => sum + (tables.get(family)?.packets(DROPPING_CHAIN) ?? 0), 0);
  /** Packets that were counted by rules that no longer exist. */
  let before = 0;
  let isWritten = false;
  return {
    write(limits) {
      const known = isWritten ? counted() : 0;
      for (const family of FAMILIES) tables.write(family, renderDnsLimit(family, limits));
      isWritten = true;
      before += known - counted();
    },
    dropped: () => before + (isWritten ? counted() : 0),
    check: async () => (await tables.check()).map((family) => `${DNS_LIMIT_TABLE} (${family})`),
    close: () => tables.close(),
  };
}

/** The clients of which the kernel drops queries now, and the node's name servers. */
export interface LimitedClients {
  /** Dropped packets by address, since the first of them; a client is left out 20 s after its last one. */
  readonly packets: ReadonlyMap<string, number>;
  /** Addresses. */
  readonly servers: ReadonlySet<string>;
}

/** Reads the clients that send too many queries from the kernel; empty without a limit. */
export function readLimitedClients(netns?: NetnsRef): LimitedClients {
  const connection = new NftConnection(netns);
  const packets = new Map<string, number>();
  const servers = new Set<string>();
  try {
    for (const family of FAMILIES) {
      const read = (set: string) => connection.elements(NFPROTO[family], DNS_LIMIT_TABLE, set);
      try {
        for (const { key, packets: count } of read(LIMITED)) packets.set(formatAddress(key), count);
        for (const { key } of read(SERVERS)) servers.add(formatAddress(key));
      } catch (error) {
        if (!hasCode(error, 'ENOENT', 'EOPNOTSUPP', 'EAFNOSUPPORT')) throw error;
      }
    }
    return { packets, servers };
  } finally {
    connection.close();
  }
}

/** Removes the rules from a node. */
export function removeDnsLimit(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (options: DnsLimitOptions): KeptTables =>
  keepTables({ ...options, families: FAMILIES, name: DNS_LIMIT_TABLE });

/** Renders one family's table; null: the family has no name server. */
export function renderDnsLimit(
  family: IPFamily,
  { servers, port, perClient, connectionsPerClient, maxClients }: DnsLimits,
): TableSpec | null {
  const own = servers.filter((one) => familyOf(one) === family);
  if (own.length === 0) return null;
  const { source, destination } = addressFields(family);
  const words = Uint32Array.from(own.flatMap((address) => [...wordsOfAddress(address, family)]));
  return {
    family,
    name: DNS_LIMIT_TABLE,
    sets: [
      { name: SERVERS, key: typesOf(destination) },
      { name: 'clients', key: typesOf(source), dynamic: true, size: maxClients },
      { name: 'connecting', key: typesOf(source), dynamic: true, size: maxClients },
      { name: LIMITED, key: typesOf(source), dynamic: true, size: maxClients },
    ],
    chains: [
      // A full set ends the first rule only.
      { name: DROPPING_CHAIN, rules: [[countKey(LIMITED, [source], NAMED_MS)], [counter, drop]] },
      {
        name: 'prerouting',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.dnsLimit },
        rules: [
          [
            is('meta.l4proto', PROTOCOL_NUMBER.UDP),
            is('th.dport', be16Port(port)),
            inSet(SERVERS, destination),
            overRate('clients', [source], perClient, TIMEOUT_MS),
            goto(DROPPING_CHAIN),
          ],
          [
            is('meta.l4proto', PROTOCOL_NUMBER.TCP),
            is('th.dport', be16Port(port)),
            is('tcp.flags', SYN, SYN_ACK),
            inSet(SERVERS, destination),
            overRate('connecting', [source], connectionsPerClient, TIMEOUT_MS),
            goto(DROPPING_CHAIN),
          ],
        ],
      },
    ],
    groups: new Map([[SERVERS, group([elements(SERVERS, words, { count: own.length })])]]),
  };
}
