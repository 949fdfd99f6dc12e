import type { NetnsRef } from '../netns.ts';
import { type InterfaceAddress, readAddress } from './addresses.ts';
import {
  AF_BRIDGE,
  RTM_DELADDR,
  RTM_DELLINK,
  RTM_DELNEIGH,
  RTM_DELROUTE,
  RTM_NEWADDR,
  RTM_NEWLINK,
  RTM_NEWNEIGH,
  RTM_NEWNETCONF,
  RTM_NEWROUTE,
  RTNLGRP,
} from './constants.ts';
import { type Link, openRouteSocket, readLink } from './links.ts';
import { type ForwardingEntry, type Neighbour, readForwardingEntry, readNeighbour } from './neighbours.ts';
import { type Route, readRoute } from './routes.ts';

/** A change of the network configuration; `overrun`: events were lost, list everything again. */
export type NetworkEvent =
  | { readonly kind: 'link'; readonly gone: boolean; readonly link: Link }
  | { readonly kind: 'address'; readonly gone: boolean; readonly address: InterfaceAddress }
  | { readonly kind: 'route'; readonly gone: boolean; readonly route: Route }
  | { readonly kind: 'neighbour'; readonly gone: boolean; readonly neighbour: Neighbour }
  | { readonly kind: 'forwarding'; readonly gone: boolean; readonly entry: ForwardingEntry }
  /**
   * A setting such as "forwarding" or "rp_filter" of a device or of all; the kernel reports only some of
   * them.
   */
  | { readonly kind: 'setting' }
  | { readonly kind: 'overrun' };

export type NetworkEventKind = Exclude<NetworkEvent['kind'], 'overrun'>;

const GROUPS: Readonly<Record<NetworkEventKind, readonly number[]>> = {
  link: [RTNLGRP.link],
  address: [RTNLGRP.ipv4Address, RTNLGRP.ipv6Address],
  route: [RTNLGRP.ipv4Route, RTNLGRP.ipv6Route],
  neighbour: [RTNLGRP.neigh],
  forwarding: [RTNLGRP.neigh],
  setting: [RTNLGRP.ipv4Netconf, RTNLGRP.ipv6Netconf],
};

/**
 * Calls `onEvent` for each change of these kinds in a namespace (default: this thread's) until the result
 * is closed. A watch does not keep the process alive.
 */
export function watchNetwork(
  kinds: readonly NetworkEventKind[],
  onEvent: (event: NetworkEvent) => void,
  netns?: NetnsRef,
): Disposable & { close(): void } {
  const socket = openRouteSocket(netns);
  socket.subscribe(
    [...new Set(kinds.flatMap((kind) => GROUPS[kind]))],
    (message) => {
      switch (message.type) {
        case RTM_NEWLINK:
        case RTM_DELLINK:
          onEvent({ kind: 'link', gone: message.type === RTM_DELLINK, link: readLink(message) });
          return;
        case RTM_NEWADDR:
        case RTM_DELADDR:
          onEvent({ kind: 'address', gone: message.type === RTM_DELADDR, address: readAddress(message) });
          return;
        case RTM_NEWROUTE:
        case RTM_DELROUTE: {
          const route = readRoute(message);
          if (route) onEvent({ kind: 'route', gone: message.type === RTM_DELROUTE, route });
          return;
        }
        case RTM_NEWNEIGH:
        case RTM_DELNEIGH: {
          const gone = message.type === RTM_DELNEIGH;
          const isBridge = message.payload[0] === AF_BRIDGE;
          if (!kinds.includes(isBridge ? 'forwarding' : 'neighbour')) return;
          if (isBridge) onEvent({ kind: 'forwarding', gone, entry: readForwardingEntry(message) });
          else onEvent({ kind: 'neighbour', gone, neighbour: readNeighbour(message) });
          return;
        }
        case RTM_NEWNETCONF:
          onEvent({ kind: 'setting' });
      }
    },
    () => onEvent({ kind: 'overrun' }),
  );
  socket.unref();
  return socket;
}
