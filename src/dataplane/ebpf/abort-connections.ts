import { type ControlGroupOwner, groupNamespaces } from '../../kernel/group-namespaces.ts';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { destroySocket, listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import type { IPFamily } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { endpointPlace } from '../../service/pools.ts';
import { flowKey, formatMapped, type Peer, readPeer, readRerouteTarget } from './entries.ts';
import type { Maps } from './maps.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** States in which the client still expects packets from the endpoint. */
const STATES = TCP_STATE.established | TCP_STATE.finWait1 | TCP_STATE.closeWait;

/**
 * Aborts the TCP connections that sockets have to these endpoints through Services: their owners read
 * ECONNABORTED. Returns the number of connections. Other connections to the endpoints are left alone; a
 * rerouted one belongs to its new endpoint. Throws EOPNOTSUPP on a kernel built without INET_DIAG_DESTROY.
 */
export function abortConnections(
  endpoints: readonly { readonly ip: string; readonly port: number }[],
  maps: Pick<Maps, 'peers' | 'reroutes'>,
  owners: ControlGroupOwner,
): number {
  const gone = new Set(endpoints.map(endpointPlace));
  let aborted = 0;
  for (const netns of groupNamespaces(owners)) {
    using socket = openIn(netns);
    if (!socket) continue;
    for (const family of FAMILIES) {
      for (const found of listSockets(socket, family, 'tcp', STATES, maps.peers.fd)) {
        if (!found.storage) continue;
        const peer = readPeer(found.storage);
        const target = peer.rerouted ? (rerouteTarget(maps, peer, found) ?? peer) : peer;
        const name = `${formatMapped(target.address)} ${target.port}`;
        if (gone.has(name) && destroySocket(socket, found)) aborted++;
      }
    }
  }
  return aborted;
}

function rerouteTarget(
  { reroutes }: Pick<Maps, 'reroutes'>,
  peer: Peer,
  { local, localPort }: { readonly local: string; readonly localPort: number },
) {
  const value = reroutes.lookup(flowKey(local, localPort, peer));
  return value && readRerouteTarget(value);
}

function openIn(netns: NetnsRef): NetlinkSocket | null {
  try {
    return new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EINVAL')) return null;
    throw error;
  }
}
