import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import { listNetns, type NetnsRef, netnsPath } from '../../kernel/netns.ts';
import { destroySocket, listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import type { IPFamily } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { flowKey, formatMapped, type Peer, readPeer, readRerouteTarget } from './entries.ts';
import type { Maps } from './maps.ts';

export interface ConnectionOwners {
  /** Directory of the control group whose processes have the sockets. */
  readonly cgroup: string;
  /** The node's network namespace; null: that of this process. */
  readonly netns: NetnsRef | null;
}

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
  owners: ConnectionOwners,
): number {
  const gone = new Set(endpoints.map(({ ip, port }) => `${ip} ${port}`));
  let aborted = 0;
  for (const netns of namespaces(owners)) {
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

/**
 * Returns the network namespaces of the node, of the processes in its control group, and all named ones: in
 * a container that cannot see the processes of other containers, the namespaces of pods are found by name.
 */
function namespaces({ cgroup, netns }: ConnectionOwners): NetnsRef[] {
  const own: NetnsRef = netns ?? { pid: process.pid };
  const refs = [own, ...processes(cgroup).map((pid) => ({ pid })), ...listNetns()];
  const found = new Map<bigint, NetnsRef>();
  for (const ref of refs) {
    try {
      const { ino } = statSync(netnsPath(ref), { bigint: true });
      if (!found.has(ino)) found.set(ino, ref);
    } catch (error) {
      // The process or namespace no longer exists.
      if (!hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) throw error;
    }
  }
  return [...found.values()];
}

function openIn(netns: NetnsRef): NetlinkSocket | null {
  try {
    return new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EINVAL')) return null;
    throw error;
  }
}

function processes(cgroup: string): number[] {
  const pids: number[] = [];
  const visit = (directory: string) => {
    let entries: Dirent[];
    try {
      const text = readFileSync(join(directory, 'cgroup.procs'), 'utf8');
      // 0: a process of another PID namespace.
      pids.push(
        ...text
          .split('\n')
          .map(Number)
          .filter((pid) => pid > 0),
      );
      entries = readdirSync(directory, { withFileTypes: true });
    } catch (error) {
      // The group was removed, or is threaded: its processes are listed in its parent.
      if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return;
      throw error;
    }
    for (const entry of entries) if (entry.isDirectory()) visit(join(directory, entry.name));
  };
  visit(cgroup);
  return pids;
}
