import { hasCode } from '../../lib/errors.ts';
import type { NetnsRef } from '../netns.ts';
import { watchNetwork } from './events.ts';
import { getLink, type Link, listLinks, openRouteSocket } from './links.ts';
import { addRoute, deleteRoute, listRoutes, ROUTE_PROTOCOL, type Route } from './routes.ts';

const LOOPBACK = '::1/128';
const RT_TABLE_LOCAL = 255;
/**
 * After the kernel's own route (metric 0); each device has its own metric, since routes with equal metrics
 * would be merged.
 */
const FIRST_METRIC = 0x464c0000;

/**
 * Keeps routes that let node ports answer on ::1 through address translation. A reply arrives on the device
 * of its endpoint, and connection tracking changes its destination back to ::1; the kernel then requires a
 * route to ::1 on that very device (rt6_need_strict in net/ipv6/route.c), so each device gets a local one.
 * IPv4's counterpart is `route_localnet`, but no protection is needed here: packets that claim ::1 on a
 * wire are dropped before netfilter (ip6_rcv_core).
 */
export interface LoopbackRoutes {
  /** Stops watching for new devices; the routes stay. */
  close(): void;
}

/** Adds the routes, for present and future devices. `netns` defaults to the namespace of this thread. */
export function keepLoopbackRoutes(netns?: NetnsRef): LoopbackRoutes {
  const cover = (links: readonly Link[]) => {
    using socket = openRouteSocket(netns);
    for (const link of links) {
      if (!link.up || link.name === 'lo' || link.master !== null) continue;
      try {
        addRoute(socket, routeFor(link.index));
      } catch (error) {
        // The route exists already, or the device has been removed or has IPv6 disabled.
        if (!hasCode(error, 'EEXIST', 'ENODEV', 'ENETDOWN', 'EINVAL', 'EACCES')) throw error;
      }
    }
  };
  const list = () => {
    using socket = openRouteSocket(netns);
    return listLinks(socket);
  };
  const watch = watchNetwork(
    ['link'],
    (event) => {
      if (event.kind === 'overrun') cover(list());
      else if (event.kind === 'link' && !event.gone) cover([event.link]);
    },
    netns,
  );
  cover(list());
  return watch;
}

/** Adds the route for one device. */
export function addLoopbackRoute(device: string, netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  try {
    addRoute(socket, routeFor(getLink(socket, device).index));
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
}

/** Removes every such route. */
export function removeLoopbackRoutes(netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  for (const route of listRoutes(socket, { family: 'ipv6', table: RT_TABLE_LOCAL })) {
    if (route.destination === LOOPBACK && route.protocol === ROUTE_PROTOCOL.fairlead)
      deleteRoute(socket, route);
  }
}

function routeFor(device: number): Route {
  return {
    destination: LOOPBACK,
    device,
    type: 'local',
    table: RT_TABLE_LOCAL,
    metric: FIRST_METRIC + device,
    protocol: ROUTE_PROTOCOL.fairlead,
  };
}
