import { leaseDurationMs, nodeOfLease, nodeOfSession } from '../kube/load-balancer.ts';
import type { Lease } from '../kube/types.ts';

/** What one node knows of all nodes' sessions, by its own clock. */
export interface SessionTable {
  /** Takes a Lease as the API server reported it. */
  see(lease: Lease): void;
  /** The Lease was deleted, which only people do. */
  forget(lease: Lease): void;
  /** Sessions that last, by node. */
  lasting(): Map<string, string>;
  /** Whether a session has no effect any longer. */
  isOver(session: string): boolean;
  /** Leases of sessions that were not renewed for `extraMs` longer than they last: to be ended. */
  expired(extraMs: (node: string) => number): Lease[];
  /** Nodes with a session, and how long ago it was seen renewed. */
  ages(): { readonly node: string; readonly ageMs: number; readonly durationMs: number }[];
}

interface Seen {
  readonly lease: Lease;
  readonly session: string;
  readonly at: number;
  readonly durationMs: number;
  readonly gone: boolean;
}

/** `unknownMs`: how long a session counts of which no Lease tells. */
export function createSessionTable(steady: () => number, unknownMs: number): SessionTable {
  const seen = new Map<string, Seen>();
  const unknown = new Map<string, number>();
  const ageOf = (entry: Seen) => steady() - entry.at;
  return {
    see(lease) {
      const node = nodeOfLease(lease);
      if (node === null) return;
      const session = lease.spec?.holderIdentity ?? '';
      seen.set(node, { lease, session, at: steady(), durationMs: leaseDurationMs(lease), gone: false });
    },
    forget(lease) {
      const node = nodeOfLease(lease);
      const entry = node === null ? undefined : seen.get(node);
      // Its node may not have noticed yet.
      if (node !== null && entry) seen.set(node, { ...entry, gone: true, at: steady() });
    },
    lasting() {
      const sessions = new Map<string, string>();
      for (const [node, entry] of seen) {
        if (entry.session !== '' && !entry.gone && ageOf(entry) < entry.durationMs)
          sessions.set(node, entry.session);
      }
      return sessions;
    },
    isOver(session) {
      const entry = seen.get(nodeOfSession(session));
      if (entry) return entry.session !== session || (entry.gone && ageOf(entry) >= entry.durationMs);
      const since = unknown.get(session) ?? steady();
      unknown.set(session, since);
      return steady() - since >= unknownMs;
    },
    expired(extraMs) {
      return [...seen].flatMap(([node, entry]) =>
        entry.session !== '' && !entry.gone && ageOf(entry) >= entry.durationMs + extraMs(node)
          ? [entry.lease]
          : [],
      );
    },
    ages() {
      return [...seen].flatMap(([node, entry]) =>
        entry.session !== '' && !entry.gone
          ? [{ node, ageMs: ageOf(entry), durationMs: entry.durationMs }]
          : [],
      );
    },
  };
}
