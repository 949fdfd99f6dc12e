import type { NetnsRef } from '../kernel/netns.ts';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
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
const DNS_FALLBACK_TABLE = 'fairlead-dns';

/** A name server that answers for a node. */
export interface OtherNameServer {
  readonly address: string;
  /** Null: it is not asked over this protocol. */
  readonly ports: Readonly<Record<(typeof PROTOCOLS)[number], number | null>>;
  /**
   * Whether it is a pod of this node: its answers could pass from pod to pod on a bridge, where they are not translated back.
   */
  readonly isHere: boolean;
}

/** The name servers of a node and of others; addresses of both families. */
export interface NameServers {
  /** The cluster DNS addresses, on which every node answers its own pods. */
  readonly cluster: readonly string[];
  /** The addresses on which this node answers the pods of other nodes. */
  readonly own: readonly string[];
  /** Those that answer the pods of this node in its place; each query goes to one of them at random. */
  readonly others: readonly OtherNameServer[];
  /** The addresses of the node that gets the queries of other nodes' pods. */
  readonly next: readonly string[];
}

/** Returns the name server at an address of another node. */
export const nameServerOfNode = (address: string): OtherNameServer => ({
  address,
  ports: { UDP: DNS_PORT, TCP: DNS_PORT },
  isHere: false,
});

/**
 * Rules that send the DNS queries of pods to other name servers while no process of this node has a socket for them. The kernel
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
const PROTOCOLS = ['UDP', 'TCP'] as const;
const DNS_PORT = 53;
/**
 * The zone of connection tracking of the queries that are sent to other name servers. In the default zone, a client that always
 * sends from the same port continues the flow of its earlier queries, and the kernel translates only the first packet
 * of a flow. With its own zone each query goes where the rules send it, in both directions of a change.
 */
const ZONE = 10_053;
/**
 * Nodes that are asked by other nodes pass queries on as well, because several agents may be replaced at the same time: each
 * to the next node, so that a query reaches no node twice. The time to live bounds the number of nodes: common initial
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

/** Renders one family's table; null: the family has no other name server. */
export function renderDnsFallback(family: IPFamily, servers: NameServers): TableSpec | null {
  const of = (addresses: readonly string[]) => addresses.filter((one) => familyOf(one) === family);
  const [cluster, own] = [of(servers.cluster), of(servers.own)];
  const others = servers.others.filter(({ address }) => familyOf(address) === family);
  const next = of(servers.next).slice(0, 1).map(nameServerOfNode);
  if (cluster.length + own.length === 0 || others.length === 0) return null;
  const { destination, originalDestination } = addressFields(family);
  const key = [destination, 'meta.l4proto', 'th.dport'] as const;
  const originalKey = [originalDestination, 'meta.l4proto', 'ct.original.proto-dst'] as const;
  const few = is(family === 'ipv4' ? 'ip.ttl' : 'ip6.hoplimit', FEW_HOPS, FEW_HOPS);
  const queriesTo = (ofPods: string, ofOthers: string): Rule[] => [
    [inSet('cluster', ...key), goto(ofPods)],
    [inSet('own', ...key), few, goto(ofOthers)],
  ];
  const toOneOf = (map: string, choices: readonly OtherNameServer[]): Rule[] => [
    [hasSocket, goBack],
    ...PROTOCOLS.flatMap((protocol): Rule[] => {
      const count = portsOf(choices, protocol).length;
      const number = PROTOCOL_NUMBER[protocol];
      return count === 0
        ? []
        : [[is('meta.l4proto', number), dnatTo(map, 'meta.l4proto', { random: count })]];
    }),
  ];
  const sockets = (set: string, addresses: readonly string[]) =>
    elements(
      set,
      Uint32Array.from(
        addresses.flatMap((address) =>
          PROTOCOLS.flatMap((protocol) => [
            ...wordsOfAddress(address, family),
            PROTOCOL_NUMBER[protocol],
            be16Port(DNS_PORT),
          ]),
        ),
      ),
      { count: addresses.length * PROTOCOLS.length },
    );
  const choicesIn = (map: string, choices: readonly OtherNameServer[]) => {
    const words = PROTOCOLS.flatMap((protocol) =>
      portsOf(choices, protocol).map(({ address, port }, i) => [
        PROTOCOL_NUMBER[protocol],
        i,
        ...wordsOfAddress(address, family),
        be16Port(port),
      ]),
    );
    return elements(map, Uint32Array.from(words.flat()), { count: words.length });
  };
  const here = others.filter(({ isHere }) => isHere);
  const hereWords = here.flatMap(({ address }) => [...wordsOfAddress(address, family)]);
  const choice = {
    key: [...typesOf('meta.l4proto'), DATA_TYPE.mark],
    data: typesOf(destination, 'th.dport'),
  };
  return {
    family,
    name: DNS_FALLBACK_TABLE,
    sets: [
      { name: 'cluster', key: typesOf(...key) },
      { name: 'own', key: typesOf(...key) },
      { name: 'others', ...choice },
      { name: 'next', ...choice },
      { name: 'here', key: typesOf(destination) },
    ],
    chains: [
      { name: 'separate', rules: [[hasSocket, goBack], [setZone(ZONE)]] },
      { name: 'to-others', rules: toOneOf('others', others) },
      { name: 'to-next', rules: toOneOf('next', next) },
      {
        name: 'separation',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.raw },
        rules: queriesTo('separate', 'separate'),
      },
      {
        name: 'prerouting',
        base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.dnsFallback },
        rules: queriesTo('to-others', 'to-next'),
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.dnsFallbackSource },
        // The answer has to return through this node, whose address the other node or the pod asked.
        rules: [
          [hasAny('ct.status', IPS_DST_NAT), inSet('own', ...originalKey), masquerade],
          [
            hasAny('ct.status', IPS_DST_NAT),
            inSet('here', destination),
            inSet('cluster', ...originalKey),
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
          choicesIn('others', others),
          choicesIn('next', next),
          elements('here', Uint32Array.from(hereWords), { count: here.length }),
        ]),
      ],
    ]),
  };
}

/** Returns the name servers that are asked over a protocol, and their ports. */
const portsOf = (servers: readonly OtherNameServer[], protocol: (typeof PROTOCOLS)[number]) =>
  servers.flatMap(({ address, ports }) => {
    const port = ports[protocol];
    return port === null ? [] : [{ address, port }];
  });
