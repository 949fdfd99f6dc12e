import { NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import { hostPort } from '../../lib/address.ts';
import type { Drift } from '../dataplane.ts';
import type { PoolListener } from './pool-listeners.ts';

const NETLINK_SOCK_DIAG = 4;

/** Compares the listeners with the namespace's sockets. */
export function compareListeners(listeners: Iterable<PoolListener>, netns: NetnsRef | undefined): Drift[] {
  const wanted = [...listeners];
  if (wanted.length === 0) return [];
  using socket = new NetlinkSocket({
    protocol: NETLINK_SOCK_DIAG,
    netns,
  });
  const there = new Set<string>();
  for (const family of ['ipv4', 'ipv6'] as const) {
    for (const [protocol, states] of [
      ['tcp', TCP_STATE.listen],
      ['udp', undefined],
    ] as const) {
      for (const { local, localPort } of listSockets(socket, family, protocol, states)) {
        there.add(`${protocol} ${hostPort({ ip: local, port: localPort })}`);
      }
    }
  }
  return wanted
    .map(({ protocol, at, pool }) => ({
      name: `${protocol.toLowerCase()} ${hostPort(at)}`,
      pool,
    }))
    .filter(({ name }) => !there.has(name))
    .map(({ name, pool }) => ({ object: `listener ${name} of ${pool}`, kind: 'missing' }));
}
