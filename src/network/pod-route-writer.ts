import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import {
  deleteForwardingEntry,
  deleteNeighbour,
  listForwardingEntries,
  listNeighbours,
  replaceForwardingEntry,
  replaceNeighbour,
} from '../kernel/rtnetlink/neighbours.ts';
import {
  deleteRoute,
  listRoutes,
  ROUTE_PROTOCOL,
  type Route,
  replaceRoute,
} from '../kernel/rtnetlink/routes.ts';
import { type IPFamily, parseCidr } from '../lib/address.ts';
import type { PodRoute } from './overlay-routes.ts';

/** The devices and addresses for routes to other nodes' pods. */
export interface KernelRoutes {
  readonly socket: NetlinkSocket;
  /** Index of the pods' bridge. */
  readonly bridge: number;
  /** Index of the VXLAN device; null: plain routes. */
  readonly tunnel: number | null;
  /** Returns the source address of this node's packets to pods. */
  sourceAddress(family: IPFamily): string | null;
}

function kernelRoute({ tunnel, sourceAddress }: KernelRoutes, route: PodRoute): Route {
  const cidr = parseCidr(route.destination);
  const source = cidr && sourceAddress(cidr.family);
  return {
    destination: route.destination,
    via: route.via,
    protocol: ROUTE_PROTOCOL.fairlead,
    ...(source ? { source } : {}),
    ...(tunnel === null ? {} : { device: tunnel }),
    // An IPv6 next hop is link-local, which every device has a route to.
    ...(tunnel === null || cidr?.family === 'ipv6' ? {} : { onlink: true }),
  };
}

/** Writes a route and the entries that it needs. `current`: the existing route. Throws the kernel's error. */
export function writePodRoute(kernel: KernelRoutes, route: PodRoute, current: PodRoute | undefined): void {
  const { socket, tunnel } = kernel;
  if (route.tunnel && tunnel !== null) {
    const { mac, remote } = route.tunnel;
    // The route last, when all the entries that it needs exist.
    replaceForwardingEntry(socket, { device: tunnel, mac, remote });
    replaceNeighbour(socket, { device: tunnel, address: route.via, mac });
  }
  if (current?.via !== route.via) replaceRoute(socket, kernelRoute(kernel, route));
}

/** Removes a route and the entries that none of the `wanted` routes needs. */
export function removePodRoute(
  { socket, tunnel }: KernelRoutes,
  route: PodRoute,
  wanted: ReadonlyMap<string, PodRoute>,
): void {
  deleteRoute(socket, { destination: route.destination, protocol: ROUTE_PROTOCOL.fairlead });
  if (!route.tunnel || tunnel === null) return;
  const { mac, remote } = route.tunnel;
  const others = [...wanted.values()];
  if (!others.some((other) => other.via === route.via))
    deleteNeighbour(socket, { device: tunnel, address: route.via });
  // A node has one entry for its device, however many networks it has.
  if (others.some((other) => other.tunnel?.mac === mac)) return;
  deleteForwardingEntry(socket, { device: tunnel, mac, remote });
}

/** Reads the existing routes. Incomplete ones (no neighbour, no tunnel) are returned without the missing parts. */
export function readPodRoutes({
  socket,
  bridge,
  tunnel,
  sourceAddress,
}: KernelRoutes): Map<string, PodRoute> {
  const macs = new Map(
    tunnel === null
      ? []
      : listNeighbours(socket, { device: tunnel })
          .filter(({ permanent }) => permanent)
          .map((entry) => [entry.address, entry.mac ?? '']),
  );
  const remotes = new Map(
    tunnel === null
      ? []
      : listForwardingEntries(socket, tunnel).map((entry) => [entry.mac, entry.remote ?? '']),
  );
  const routes = new Map<string, PodRoute>();
  for (const family of ['ipv4', 'ipv6'] as const) {
    for (const route of listRoutes(socket, { family, protocol: ROUTE_PROTOCOL.fairlead })) {
      if (route.device === bridge) continue;
      const mac = macs.get(route.via ?? '') ?? '';
      const inTunnel = tunnel !== null && route.device === tunnel;
      const expected = sourceAddress(family);
      // A route with a wrong device, or with a previous address of this node, must be rewritten.
      const right = (tunnel === null || inTunnel) && (expected === null || route.source === expected);
      routes.set(route.destination, {
        destination: route.destination,
        via: right ? (route.via ?? '') : '',
        node: '',
        tunnel: inTunnel ? { mac, remote: remotes.get(mac) ?? '' } : null,
      });
    }
  }
  return routes;
}
