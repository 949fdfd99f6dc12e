import { leaseDurationMs, nodeOfLease, nodeOfSession } from '../kube/load-balancer.ts';
import type { Lease } from '../kube/types.ts';

/** The sessions of all nodes from the view of one node, by its clock. */
export interface SessionTable {
  /** Records a Lease as the API server reported it. */
  see(lease: Lease): void;
  /** Removes a deleted Lease; only users delete Leases of sessions. */
  forget(lease: Lease): void;
  /** Returns live sessions by node. */
  lasting(): Map<string, string>;
  /** Returns true if a session is over. */
  isOver(session: string): boolean;
  /** Returns the Leases of expired sessions: not renewed for their duration and `extraMs`. */
  expired(extraMs: (node: string) => number): Lease[];
  /** Returns nodes with a session, and the time since its last renewal was seen. */
  ages(): { readonly node: string; readonly ageMs: number; readonly durationMs: number }[];
}

interface Seen {
  readonly lease: Lease;
  readonly session: string;
  readonly at: number;
  readonly durationMs: number;
  readonly gone: boolean;
}

/** Creates an empty table. `unknownMs`: how long a session without a Lease counts as live. */
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
      // The session's node may not have noticed yet.
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
