import { createHash } from 'node:crypto';
import { nodeOfSession } from '../kube/load-balancer.ts';
import type { WantedAddress } from './candidates.ts';

/** One node's view of the Leases, including its own: the input of an election. */
export interface ElectionView {
  readonly node: string;
  /** This node's live session, or null. */
  readonly session: string | null;
  /** Live sessions by node, including this node's. */
  readonly sessions: ReadonlyMap<string, string>;
  /** Nodes that may announce addresses. */
  readonly eligible: ReadonlySet<string>;
  readonly wanted: ReadonlyMap<string, WantedAddress>;
  /** Address → the session in its Lease; empty: none. Addresses without a Lease are absent. */
  readonly owners: ReadonlyMap<string, string>;
  /** Returns true if a session is over: its node or another one ended it, or a newer one replaced it. */
  readonly isOver: (session: string) => boolean;
}

export interface ElectionResult {
  /** Addresses that this node owns and keeps. */
  readonly keep: readonly string[];
  /** Addresses that this node owns but has to release: it may not announce them, or no Service has them. */
  readonly release: readonly string[];
  /**
   * Free addresses that this node may claim. Nodes with equal views agree on the node of rank 0; the others wait, in
   * case it does not claim the address.
   */
  readonly claim: readonly { readonly address: string; readonly rank: number }[];
  /** Addresses without a Service or an owner whose Leases this node, the first in rank, has to delete. */
  readonly remove: readonly string[];
}

/**
 * Decides which addresses a node should own. Free addresses go, in order, to the node with the fewest; ties are broken
 * by a hash of node and address. An address never moves from a node that may keep it: connections through it would break.
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

/** Orders nodes by the address alone (rendezvous hashing). */
export function byPreference(nodes: readonly string[], address: string): string[] {
  const weighed = nodes.map((node) => ({
    node,
    weight: createHash('sha256').update(`${node}\0${address}`).digest('hex'),
  }));
  return weighed.sort((a, b) => (a.weight < b.weight ? -1 : 1)).map(({ node }) => node);
}
