import type { NetnsRef } from '../kernel/netns.ts';
import type { NftBatch } from '../kernel/nftables/batch.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { DATA_TYPE, NFPROTO } from '../kernel/nftables/constants.ts';
import { BASE, bitwise, CMP, compare, inSet, masquerade, payload } from '../kernel/nftables/expressions.ts';
import { addressBytes, type Cidr, type IPFamily } from '../lib/address.ts';
import { addressFromNumber, parseAddressRange } from '../lib/address-range.ts';
import type { PeerNode } from './peer-node.ts';

/** The table of each family (`ip` and `ip6`). */
export const EGRESS_TABLE = 'fairlead-egress';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const SOURCE_NAT = 100;

/**
 * Lets pods reach what is not of the cluster: nobody there has a route back to a pod, so that connections leave with
 * the node's own address. To pods and nodes, which know the way back, nothing is translated.
 */
export interface Egress {
  /** Programs what the cluster is, unless that is how it stands already. */
  write(nodes: readonly PeerNode[]): void;
  close(): void;
}

/** `podCidrs`: this node's own. */
export function openEgress(podCidrs: readonly Cidr[], netns?: NetnsRef): Egress {
  const connection = new NftConnection(netns);
  let written = '';
  return {
    write(nodes) {
      const networks = [
        ...podCidrs.map(({ text }) => text),
        ...nodes.flatMap((node) => [...node.podCidrs, ...node.addresses]),
      ];
      const wanted = networks.toSorted().join(' ');
      if (wanted === written) return;
      for (const family of FAMILIES) {
        const own = podCidrs.filter((cidr) => cidr.family === family);
        replaceTable(connection, family, (batch) => {
          if (own.length > 0) writeTable(batch, family, own, mergedRanges(networks, family));
        });
      }
      written = wanted;
    },
    close: () => connection.close(),
  };
}

/** Takes the rules off a node. */
export function removeEgress(netns?: NetnsRef): void {
  const connection = new NftConnection(netns);
  try {
    for (const family of FAMILIES) replaceTable(connection, family, () => {});
  } finally {
    connection.close();
  }
}

function replaceTable(connection: NftConnection, family: IPFamily, write: (batch: NftBatch) => void): void {
  const batch = connection.batch(NFPROTO[family]);
  // Adding what may be there makes deleting it sure to work.
  batch.addTable(EGRESS_TABLE);
  batch.deleteTable(EGRESS_TABLE);
  write(batch);
  connection.commitSync(batch);
}

interface Range {
  readonly first: bigint;
  readonly last: bigint;
}

/** Networks and addresses of a family as ranges that neither touch nor overlap, in order. */
function mergedRanges(texts: readonly string[], family: IPFamily): Range[] {
  const ranges = texts
    .flatMap((text) => parseAddressRange(text) ?? [])
    .filter((one) => one.family === family);
  ranges.sort((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0));
  const merged: { first: bigint; last: bigint }[] = [];
  for (const { first, last } of ranges) {
    const before = merged.at(-1);
    if (!before || first > before.last + 1n) merged.push({ first, last });
    else if (last > before.last) before.last = last;
  }
  return merged;
}

function writeTable(
  batch: NftBatch,
  family: IPFamily,
  own: readonly Cidr[],
  cluster: readonly Range[],
): void {
  const v4 = family === 'ipv4';
  const bytes = v4 ? 4 : 16;
  const table = EGRESS_TABLE;
  const source = payload(BASE.network, v4 ? 12 : 8, bytes, 0);
  const destination = payload(BASE.network, v4 ? 16 : 24, bytes, 0);
  batch.addTable(table);
  batch.addSet(table, {
    name: 'cluster',
    key: [v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address],
    interval: true,
  });
  const most = (1n << BigInt(bytes * 8)) - 1n;
  for (const { first, last } of cluster) {
    batch.addElement(table, 'cluster', { key: wordsOf(addressFromNumber(family, first)) });
    if (last < most) {
      batch.addElement(table, 'cluster', {
        key: wordsOf(addressFromNumber(family, last + 1n)),
        intervalEnd: true,
      });
    }
  }
  batch.addChain(table, 'postrouting', { type: 'nat', hook: 'postrouting', priority: SOURCE_NAT });
  for (const cidr of own) {
    batch.addRule(table, 'postrouting', [
      source,
      bitwise(0, 0, maskOf(cidr), new Uint8Array(bytes)),
      compare(0, CMP.equal, cidr.bytes),
      destination,
      inSet('cluster', 0, true),
      masquerade,
    ]);
  }
}

/** An address as it stands in registers: 32-bit words in the host's (little) order over bytes in the network's. */
function wordsOf(address: string): number[] {
  return [...new Uint32Array(Uint8Array.from(addressBytes(address) ?? []).buffer)];
}

function maskOf(cidr: Cidr): Uint8Array {
  return cidr.bytes.map((_, i) => (0xff << (8 - Math.min(8, Math.max(0, cidr.prefix - i * 8)))) & 0xff);
}
