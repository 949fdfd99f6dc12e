import type { NetnsRef } from '../kernel/netns.ts';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { be16Port, wordsOfAddress } from '../nft/encoding.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import {
  addressFields,
  dnatTo,
  goBack,
  goto,
  hasAny,
  hasSocket,
  IPS_DST_NAT,
  inSet,
  is,
  masquerade,
  type Rule,
  setZone,
  typesOf,
} from '../nft/rule.ts';
import { elements, group, type TableSpec } from '../nft/spec.ts';

/** The table of each family (`ip` and `ip6`). */
export const DNS_FALLBACK_TABLE = 'fairlead-dns';

/** The name servers of a node and of others; addresses of both families. */
export interface NameServers {
  /** The cluster DNS addresses, on which every node answers its own pods. */
  readonly cluster: readonly string[];
  /** The addresses on which this node answers the pods of other nodes. */
  readonly own: readonly string[];
  /** The addresses on which other nodes answer the pods of this node; each query goes to one of them at random. */
  readonly others: readonly string[];
  /** The addresses of the node that gets the queries of other nodes' pods. */
  readonly next: readonly string[];
}

/**
 * Rules that send the DNS queries of pods to other nodes while no process of this node has a socket for them. The kernel
 * looks for the socket itself (nft_socket), so that the rules take effect at the moment at which the agent's socket
 * closes, however it ends, and until the next agent's socket opens.
 */
export interface DnsFallback {
  /** Programs the name servers, unless they are already programmed. */
  write(servers: NameServers): void;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  close(): void;
}

export interface DnsFallbackOptions {
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

const FAMILIES = ['ipv4', 'ipv6'] as const;
const DNS_PORT = 53;
/** `separation` is before connection tracking (-200), `destinationNat` before the proxy's (-100). */
const PRIORITY = { separation: -300, destinationNat: -110, sourceNat: 90 } as const;
/**
 * The zone of connection tracking of the queries that are sent to other nodes. In the default zone, a client that always
 * sends from the same port continues the flow of its earlier queries, and the kernel translates only the first packet
 * of a flow. With its own zone each query goes where the rules send it, in both directions of a change.
 */
const ZONE = 10_053;
/**
 * Nodes that are asked by other nodes pass queries on as well, because several agents may be replaced at the same time: each
 * to the next node, so that a query meets no node twice. The time to live bounds the number of nodes: common initial
 * values (64, 128, 255) have these bits until the fourth hop.
 */
const FEW_HOPS = 0x3c;

export function openDnsFallback(options: DnsFallbackOptions): DnsFallback {
  const tables = openTables(options);
  return {
    write(servers) {
      for (const family of FAMILIES) tables.write(family, renderDnsFallback(family, servers));
    },
    check: async () => (await tables.check()).map((family) => `${DNS_FALLBACK_TABLE} (${family})`),
    close: () => tables.close(),
  };
}

/** Removes the rules from a node. */
export function removeDnsFallback(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (options: DnsFallbackOptions): KeptTables =>
  keepTables({ ...options, families: FAMILIES, name: DNS_FALLBACK_TABLE });

/** Renders one family's table; null: there is no other node to ask. */
export function renderDnsFallback(family: IPFamily, servers: NameServers): TableSpec | null {
  const of = (addresses: readonly string[]) => addresses.filter((one) => familyOf(one) === family);
  const [cluster, own, others] = [of(servers.cluster), of(servers.own), of(servers.others)];
  const next = of(servers.next).slice(0, 1);
  if (cluster.length + own.length === 0 || others.length === 0) return null;
  const { destination, originalDestination } = addressFields(family);
  const key = [destination, 'meta.l4proto', 'th.dport'] as const;
  const few = is(family === 'ipv4' ? 'ip.ttl' : 'ip6.hoplimit', FEW_HOPS, FEW_HOPS);
  const queriesTo = (ofPods: string, ofOthers: string): Rule[] => [
    [inSet('cluster', ...key), goto(ofPods)],
    [inSet('own', ...key), few, goto(ofOthers)],
  ];
  const toOneOf = (map: string, count: number): Rule[] => [
    [hasSocket, goBack],
    ...(count > 0 ? [[dnatTo(map, { random: count })]] : []),
  ];
  const sockets = (set: string, addresses: readonly string[]) =>
    elements(
      set,
      Uint32Array.from(
        addresses.flatMap((address) =>
          [PROTOCOL_NUMBER.UDP, PROTOCOL_NUMBER.TCP].flatMap((protocol) => [
            ...wordsOfAddress(address, family),
            protocol,
            be16Port(DNS_PORT),
          ]),
        ),
      ),
      { count: addresses.length * 2 },
    );
  const nodes = (set: string, addresses: readonly string[]) =>
    elements(
      set,
      Uint32Array.from(
        addresses.flatMap((address, i) => [i, ...wordsOfAddress(address, family), be16Port(DNS_PORT)]),
      ),
      { count: addresses.length },
    );
  return {
    family,
    name: DNS_FALLBACK_TABLE,
    sets: [
      { name: 'cluster', key: typesOf(...key) },
      { name: 'own', key: typesOf(...key) },
      { name: 'others', key: [DATA_TYPE.mark], data: typesOf(destination, 'th.dport') },
      { name: 'next', key: [DATA_TYPE.mark], data: typesOf(destination, 'th.dport') },
    ],
    chains: [
      { name: 'separate', rules: [[hasSocket, goBack], [setZone(ZONE)]] },
      { name: 'to-others', rules: toOneOf('others', others.length) },
      { name: 'to-next', rules: toOneOf('next', next.length) },
      {
        name: 'separation',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.separation },
        rules: queriesTo('separate', 'separate'),
      },
      {
        name: 'prerouting',
        base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.destinationNat },
        rules: queriesTo('to-others', 'to-next'),
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.sourceNat },
        // The answer has to return through this node, whose address the other node asked.
        rules: [
          [
            hasAny('ct.status', IPS_DST_NAT),
            inSet('own', originalDestination, 'meta.l4proto', 'ct.original.proto-dst'),
            masquerade,
          ],
        ],
      },
    ],
    groups: new Map([
      [
        'servers',
        group([
          sockets('cluster', cluster),
          sockets('own', own),
          nodes('others', others),
          nodes('next', next),
        ]),
      ],
    ]),
  };
}
