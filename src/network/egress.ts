import type { NetnsRef } from '../kernel/netns.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import type { Cidr, IPFamily } from '../lib/address.ts';
import { addressBytes } from '../lib/address.ts';
import { addressFromNumber, parseAddressRange } from '../lib/address-range.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { type AddressRange, maskOf, mergeRanges } from '../nft/ranges.ts';
import { addressFields, is, masquerade, notInSet, typesOf } from '../nft/rule.ts';
import { group, rangeElements, type TableSpec } from '../nft/spec.ts';
import type { PeerNode } from './peer-node.ts';

/** The table of each family (`ip` and `ip6`). */
export const EGRESS_TABLE = 'fairlead-egress';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const CLUSTER = 'cluster';

/**
 * Masquerades connections from pods to addresses outside the cluster as the node's address, since hosts there have no
 * route to pods. Packets to pods and nodes, which have routes, are not translated.
 */
export interface Egress {
  /** Programs the networks of the cluster, unless they are already programmed. */
  write(nodes: readonly PeerNode[]): void;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  close(): void;
}

export interface EgressOptions {
  /** The pod networks of this node. */
  readonly podCidrs: readonly Cidr[];
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

export function openEgress({ podCidrs, ...options }: EgressOptions): Egress {
  const tables = openTables(options);
  return {
    write(nodes) {
      for (const family of FAMILIES) tables.write(family, renderEgress(family, podCidrs, nodes));
    },
    check: async () => (await tables.check()).map((family) => `${EGRESS_TABLE} (${family})`),
    close: () => tables.close(),
  };
}

/** Removes the rules from a node. */
export function removeEgress(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (options: Omit<EgressOptions, 'podCidrs'>): KeptTables =>
  keepTables({ ...options, families: FAMILIES, name: EGRESS_TABLE });

/** Renders one family's table; null for a node without pods of the family. */
export function renderEgress(
  family: IPFamily,
  podCidrs: readonly Cidr[],
  nodes: readonly PeerNode[],
): TableSpec | null {
  const own = podCidrs.filter((cidr) => cidr.family === family);
  if (own.length === 0) return null;
  const { source, destination } = addressFields(family);
  const networks = [
    ...podCidrs.map(({ text }) => text),
    ...nodes.flatMap((node) => [...node.podCidrs, ...node.addresses]),
  ];
  return {
    family,
    name: EGRESS_TABLE,
    sets: [{ name: CLUSTER, key: typesOf(destination), interval: true }],
    chains: [
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
        rules: own.map((cidr) => [
          is(source, cidr.bytes, maskOf(cidr)),
          notInSet(CLUSTER, destination),
          masquerade,
        ]),
      },
    ],
    groups: new Map([[CLUSTER, group([rangeElements(CLUSTER, mergeRanges(rangesOf(networks, family)))])]]),
  };
}

/** Returns the networks and addresses of a family; invalid text is left out. */
function rangesOf(texts: readonly string[], family: IPFamily): AddressRange[] {
  return texts.flatMap((text) => {
    const range = parseAddressRange(text);
    if (range?.family !== family) return [];
    const bytes = (value: bigint) => addressBytes(addressFromNumber(family, value)) ?? new Uint8Array(0);
    return [{ first: bytes(range.first), last: bytes(range.last) }];
  });
}
