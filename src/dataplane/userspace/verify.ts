import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import { hostPort } from '../../lib/address.ts';
import type { Drift } from '../dataplane.ts';
import { placeOf } from './listener-table.ts';
import type { PoolListener } from './pool-listener.ts';

/** Compares the listeners with the namespace's sockets. */
export function compareListeners(listeners: Iterable<PoolListener>, netns: NetnsRef | undefined): Drift[] {
  const wanted = [...listeners];
  if (wanted.length === 0) return [];
  using socket = new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
  const there = new Set<string>();
  for (const family of ['ipv4', 'ipv6'] as const) {
    const tcp = listSockets(socket, family, 'tcp', TCP_STATE.listen);
    for (const { local, localPort } of tcp) there.add(placeOf('TCP', { ip: local, port: localPort }));
    const udp = listSockets(socket, family, 'udp');
    for (const { local, localPort } of udp) there.add(placeOf('UDP', { ip: local, port: localPort }));
  }
  return wanted
    .filter(({ protocol, at }) => !there.has(placeOf(protocol, at)))
    .map(({ protocol, at, pool }) => ({
      object: `listener ${protocol.toLowerCase()} ${hostPort(at)} of ${pool}`,
      kind: 'missing',
    }));
}
