import { hasCode } from '../../lib/errors.ts';
import type { NetnsRef } from '../netns.ts';
import { watchNetwork } from './events.ts';
import { getLink, type Link, listLinks, openRouteSocket } from './links.ts';
import { addRoute, deleteRoute, listRoutes, ROUTE_PROTOCOL, type Route } from './routes.ts';

const LOOPBACK = '::1/128';
const RT_TABLE_LOCAL = 255;
/** Behind the kernel's own route (metric 0); each device has a metric of its own, since equal ones would be joined. */
const FIRST_METRIC = 0x464c0000;

/**
 * Lets node ports answer on ::1 by address translation. A reply comes in by the device of its endpoint, and connection
 * tracking turns its destination back into ::1; the kernel then wants a route to ::1 on that very device
 * (rt6_need_strict in net/ipv6/route.c), so each device gets a local one. IPv4's counterpart is `route_localnet`, but
 * nothing has to be guarded here: packets that claim ::1 on a wire are dropped before netfilter (ip6_rcv_core).
 */
export interface LoopbackRoutes {
  /** Stops watching for new devices; the routes stay. */
  close(): void;
}

/** Adds the routes, now and for devices that come later. `netns` defaults to the namespace of this thread. */
export function keepLoopbackRoutes(netns?: NetnsRef): LoopbackRoutes {
  const cover = (links: readonly Link[]) => {
    using socket = openRouteSocket(netns);
    for (const link of links) {
      if (!link.up || link.name === 'lo' || link.master !== null) continue;
      try {
        addRoute(socket, routeFor(link.index));
      } catch (error) {
        // There already, or the device is gone again or has IPv6 turned off.
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
