import { createHash } from 'node:crypto';
import { nodeOfSession } from '../kube/load-balancer.ts';
import type { WantedAddress } from './candidates.ts';

/** What an election is decided on: one node's view of the Leases, its own among them. */
export interface ElectionView {
  readonly node: string;
  /** This node's session while it lasts, else null. */
  readonly session: string | null;
  /** Sessions that last, by node, this node's included. */
  readonly sessions: ReadonlyMap<string, string>;
  /** Nodes that may announce at all. */
  readonly eligible: ReadonlySet<string>;
  readonly wanted: ReadonlyMap<string, WantedAddress>;
  /** Address → the session that its Lease names; empty: none. Addresses without a Lease are absent. */
  readonly owners: ReadonlyMap<string, string>;
  /** Whether a session has no effect any longer: it ended, was ended, or another took its place. */
  readonly isOver: (session: string) => boolean;
}

export interface ElectionResult {
  /** Owned by this node, and rightly so. */
  readonly keep: readonly string[];
  /** Owned by this node, which should not have it: another may take it, or it is not wanted. */
  readonly release: readonly string[];
  /**
   * Free, and open to this node. Rank 0 is whom all views that are equal choose; the others wait for their turn, in
   * case the first does not come.
   */
  readonly claim: readonly { readonly address: string; readonly rank: number }[];
  /** Leases of addresses that are neither wanted nor owned: the first in rank removes them. */
  readonly remove: readonly string[];
}

/**
 * Decides what a node should own. Free addresses go, in their order, to the node with the fewest, so that they are
 * spread; ties are broken by a hash of node and address, so that not always the same comes first. An address
 * never moves from a node that may keep it: connections through it would break.
 */
export function elect(view: ElectionView): ElectionResult {
  const { session, wanted, owners } = view;
  const loads = new Map<string, number>();
  for (const node of view.sessions.keys()) if (view.eligible.has(node)) loads.set(node, 0);
  const mayHave = (node: string, address: string) => {
    const want = wanted.get(address);
    return want !== undefined && loads.has(node) && (want.nodes === null || want.nodes.has(node));
  };
  const keep: string[] = [];
  const release: string[] = [];
  const remove: string[] = [];
  for (const [address, owner] of owners) {
    const node = nodeOfSession(owner);
    if (owner !== '' && !view.isOver(owner)) {
      if (mayHave(node, address)) loads.set(node, (loads.get(node) ?? 0) + 1);
      if (owner !== session) continue;
      if (mayHave(node, address)) keep.push(address);
      else release.push(address);
    } else if (!wanted.has(address) && byPreference([...view.sessions.keys()], address)[0] === view.node) {
      remove.push(address);
    }
  }
  const free = [...wanted.keys()]
    .filter((address) => {
      const owner = owners.get(address) ?? '';
      return owner === '' || view.isOver(owner);
    })
    .sort();
  const claim: { address: string; rank: number }[] = [];
  for (const address of free) {
    const candidates = [...loads.keys()].filter((node) => mayHave(node, address));
    const ranked = byPreference(candidates, address).sort(
      (a, b) => (loads.get(a) ?? 0) - (loads.get(b) ?? 0),
    );
    const [first] = ranked;
    if (first === undefined) continue;
    loads.set(first, (loads.get(first) ?? 0) + 1);
    const rank = ranked.indexOf(view.node);
    if (rank >= 0 && session !== null) claim.push({ address, rank });
  }
  return { keep, release, claim, remove };
}

/** Nodes in an order that depends on the address and on nothing else (rendezvous hashing). */
export function byPreference(nodes: readonly string[], address: string): string[] {
  const weighed = nodes.map((node) => ({
    node,
    weight: createHash('sha256').update(`${node}\0${address}`).digest('hex'),
  }));
  return weighed.sort((a, b) => (a.weight < b.weight ? -1 : 1)).map(({ node }) => node);
}
