import { netnsCookie } from '../../kernel/bpf/netns-cookie.ts';
import { type ControlGroupOwner, groupNamespaces } from '../../kernel/group-namespaces.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { findRoute } from '../../kernel/rtnetlink/routes.ts';
import { familyOf } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';

/** Finds the addresses of clients that programs refuse before their sockets have one. */
export interface RejectedClients {
  /**
   * Returns the address that a process in the network namespace with this cookie would have used towards a destination.
   * Null: the namespace is not visible here, or has no route.
   */
  addressOf(cookie: bigint, destination: string): string | null;
}

/** How often an unknown namespace is searched for at most: that costs time on a node with many processes. */
const SEARCH_MS = 1000;
const MAX_KNOWN = 4096;

export function createRejectedClients(
  owner: ControlGroupOwner,
  { now }: Pick<Clock, 'now'>,
): RejectedClients {
  let namespaces: ReadonlyMap<bigint, NetnsRef> = new Map();
  let searchedAt: number | null = null;
  const known = new Map<string, string>();

  const search = () => {
    if (searchedAt !== null && now() - searchedAt < SEARCH_MS) return;
    searchedAt = now();
    namespaces = new Map(
      groupNamespaces(owner).flatMap((ref): [bigint, NetnsRef][] => {
        try {
          return [[netnsCookie(ref), ref]];
        } catch {
          // It ended meanwhile.
          return [];
        }
      }),
    );
  };
  return {
    addressOf(cookie, destination) {
      const key = `${cookie} ${familyOf(destination)}`;
      const before = known.get(key);
      if (before !== undefined) return before;
      let found = sourceIn(namespaces.get(cookie), destination);
      if (found === null) {
        search();
        found = sourceIn(namespaces.get(cookie), destination);
      }
      if (known.size >= MAX_KNOWN) known.clear();
      if (found !== null) known.set(key, found);
      return found;
    },
  };
}

function sourceIn(netns: NetnsRef | undefined, destination: string): string | null {
  if (!netns) return null;
  try {
    using socket = openRouteSocket(netns);
    return findRoute(socket, destination)?.source ?? null;
  } catch {
    // The process by which it was found has ended.
    return null;
  }
}
