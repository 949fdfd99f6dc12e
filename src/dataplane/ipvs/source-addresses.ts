import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import type { NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { deleteRoute, ROUTE_PROTOCOL, type Route, replaceRoute } from '../../kernel/rtnetlink/routes.ts';
import { familyOf, type IPFamily } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';

const RT_TABLE_LOCAL = 255;
/** IPv6's default metric, after the kernel's route to an address, which has none. */
const METRIC = 1024;
/** enum tcp_conntrack: TIME_WAIT and CLOSE. */
const OVER: ReadonlySet<number | null> = new Set([7, 8]);

/**
 * Makes this node's processes use another address of the node as the source of connections to addresses of
 * a device. Otherwise the source is the destination itself, and a connection breaks when that address
 * leaves the node, in any mode.
 */
export function preferSources(
  device: number,
  addresses: Iterable<string>,
  sources: Readonly<Record<IPFamily, string | null>>,
  netns?: NetnsRef,
): void {
  using socket = openRouteSocket(netns);
  for (const address of addresses) {
    const family = familyOf(address) ?? 'ipv4';
    const source = sources[family];
    if (source === null) continue;
    const route = routeTo(address, device);
    try {
      if (family === 'ipv4') replaceRoute(socket, { ...route, protocol: ROUTE_PROTOCOL.kernel, source });
      else {
        replaceRoute(socket, { ...route, protocol: ROUTE_PROTOCOL.fairlead, metric: METRIC, source });
        deleteRoute(socket, { ...route, protocol: ROUTE_PROTOCOL.kernel });
      }
    } catch (error) {
      // The node has just lost the source address, and the connections that used it.
      if (!hasCode(error, 'EINVAL', 'ENODEV', 'ENETDOWN')) throw error;
    }
  }
}

/**
 * Reverts `preferSources` when the mode is in use again: IPv4's routes are those of the kernel, which are
 * removed with their addresses.
 */
export function restoreSources(device: number, addresses: Iterable<string>, netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  for (const address of addresses) {
    if (familyOf(address) !== 'ipv4') continue;
    const route = routeTo(address, device);
    replaceRoute(socket, { ...route, protocol: ROUTE_PROTOCOL.kernel, source: address });
  }
}

/** Removes the routes of `preferSources` for a removed address; IPv4's were removed with it. */
export function forgetSource(socket: NetlinkSocket, device: number, address: string): void {
  if (familyOf(address) !== 'ipv6') return;
  deleteRoute(socket, { ...routeTo(address, device), protocol: ROUTE_PROTOCOL.fairlead, metric: METRIC });
}

/** Returns the addresses that are the source of open TCP connections. */
export function sourcesInUse(
  addresses: ReadonlySet<string>,
  families: readonly IPFamily[],
  netns?: NetnsRef,
): Set<string> {
  const used = new Set<string>();
  using conntrack = new ConntrackConnection(netns);
  for (const family of families) {
    for (const { original, tcpState } of conntrack.list(family, { protocol: PROTOCOL_NUMBER.TCP })) {
      if (addresses.has(original.source) && !OVER.has(tcpState)) used.add(original.source);
    }
  }
  return used;
}

function routeTo(address: string, device: number): Route {
  const prefix = address.includes(':') ? 128 : 32;
  return { destination: `${address}/${prefix}`, device, type: 'local', table: RT_TABLE_LOCAL };
}
