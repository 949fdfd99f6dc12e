import { isDeepStrictEqual } from 'node:util';
import type { NetnsRef } from '../kernel/netns.ts';
import type { Cidr, IPFamily } from '../lib/address.ts';
import { addressBytes } from '../lib/address.ts';
import { addressFromNumber, parseAddressRange } from '../lib/address-range.ts';
import { type AddressRange, maskOf, mergeRanges } from '../nft/ranges.ts';
import { addressFields, is, masquerade, notInSet, typesOf } from '../nft/rule.ts';
import { group, rangeElements, type TableSpec } from '../nft/spec.ts';
import { Tables } from '../nft/tables.ts';
import type { PeerNode } from './peer-node.ts';

/** The table of each family (`ip` and `ip6`). */
export const EGRESS_TABLE = 'fairlead-egress';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const SOURCE_NAT = 100;
const CLUSTER = 'cluster';

/**
 * Lets pods reach addresses outside the cluster, where no host has a route back to a pod: such connections leave with
 * the node's own address. Packets to pods and nodes, which know the way back, are not translated.
 */
export interface Egress {
  /** Programs the networks of the cluster, unless they are programmed already. */
  write(nodes: readonly PeerNode[]): void;
  close(): void;
}

/** `podCidrs`: this node's own. */
export function openEgress(podCidrs: readonly Cidr[], netns?: NetnsRef): Egress {
  const tables = openTables(netns);
  const written = new Map<IPFamily, TableSpec | null>();
  return {
    write(nodes) {
      for (const table of tables) {
        const spec = renderEgress(table.family, podCidrs, nodes);
        if (written.has(table.family) && isDeepStrictEqual(written.get(table.family), spec)) continue;
        if (spec) table.replaceSync(spec);
        else table.removeSync();
        written.set(table.family, spec);
      }
    },
    close: () => tables.close(),
  };
}

/** Removes the rules from a node. */
export function removeEgress(netns?: NetnsRef): void {
  const tables = openTables(netns);
  try {
    for (const table of tables) table.removeSync();
  } finally {
    tables.close();
  }
}

const openTables = (netns: NetnsRef | undefined): Tables =>
  new Tables({ families: FAMILIES, name: EGRESS_TABLE, netns, owned: false });

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
        base: { type: 'nat', hook: 'postrouting', priority: SOURCE_NAT },
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

/** Networks and addresses of a family; text that is neither is left out. */
function rangesOf(texts: readonly string[], family: IPFamily): AddressRange[] {
  return texts.flatMap((text) => {
    const range = parseAddressRange(text);
    if (range?.family !== family) return [];
    const bytes = (value: bigint) => addressBytes(addressFromNumber(family, value)) ?? new Uint8Array(0);
    return [{ first: bytes(range.first), last: bytes(range.last) }];
  });
}
