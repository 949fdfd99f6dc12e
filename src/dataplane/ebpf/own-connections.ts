import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import { listNetns, type NetnsRef, netnsPath } from '../../kernel/netns.ts';
import { destroySocket, listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import type { IPFamily } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { formatMapped } from './kernel-contents.ts';
import { flowKey, type Peer, readPeer, readRescueTarget } from './layout.ts';
import type { Maps } from './socket-programs.ts';

export interface ConnectionOwners {
  /** Directory of the control group whose processes have the sockets. */
  readonly cgroup: string;
  /** The node's network namespace; null: that of this process. */
  readonly netns: NetnsRef | null;
}

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** Connections that wait for something from their endpoint. */
const STATES = TCP_STATE.established | TCP_STATE.finWait1 | TCP_STATE.closeWait;

/**
 * Ends TCP connections that sockets have to these endpoints through Services: their owners read ECONNABORTED. How many
 * they were. Only sockets that the programs pointed there are touched, and those that were rescued only where they ended
 * up. Throws EOPNOTSUPP on a kernel built without INET_DIAG_DESTROY.
 */
export function endConnections(
  endpoints: readonly { readonly ip: string; readonly port: number }[],
  maps: Pick<Maps, 'peers' | 'rescues'>,
  owners: ConnectionOwners,
): number {
  const gone = new Set(endpoints.map(({ ip, port }) => `${ip} ${port}`));
  let ended = 0;
  for (const netns of namespaces(owners)) {
    using socket = openIn(netns);
    if (!socket) continue;
    for (const family of FAMILIES) {
      for (const found of listSockets(socket, family, 'tcp', STATES, maps.peers.fd)) {
        if (!found.storage) continue;
        const peer = readPeer(found.storage);
        const target = peer.rescued ? (rescueTarget(maps, peer, found) ?? peer) : peer;
        const name = `${formatMapped(target.address)} ${target.port}`;
        if (gone.has(name) && destroySocket(socket, found)) ended++;
      }
    }
  }
  return ended;
}

function rescueTarget(
  { rescues }: Pick<Maps, 'rescues'>,
  peer: Peer,
  { local, localPort }: { readonly local: string; readonly localPort: number },
) {
  const value = rescues.lookup(flowKey(local, localPort, peer));
  return value && readRescueTarget(value);
}

/**
 * The node's namespace, those of the processes of its control group, and those with names: where this process does not
 * see other containers' processes, pods' namespaces have names.
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
      // It has ended.
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
      // 0: of a process that this one cannot see.
      pids.push(
        ...text
          .split('\n')
          .map(Number)
          .filter((pid) => pid > 0),
      );
      entries = readdirSync(directory, { withFileTypes: true });
    } catch (error) {
      // It is gone, or a group of threads, whose processes are listed above it.
      if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return;
      throw error;
    }
    for (const entry of entries) if (entry.isDirectory()) visit(join(directory, entry.name));
  };
  visit(cgroup);
  return pids;
}
