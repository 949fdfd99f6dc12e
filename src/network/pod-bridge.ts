import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { addLink, findLink, getLink } from '../kernel/rtnetlink/links.ts';
import {
  deleteRoute,
  listRoutes,
  ROUTE_PROTOCOL,
  type Route,
  replaceRoute,
} from '../kernel/rtnetlink/routes.ts';
import { addressAt, type Cidr, type IPFamily, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { keepAddresses, keepState } from './kept-device.ts';
import { writeDiffering } from './uplink.ts';

/** The bridge of a node's pods. */
export const POD_BRIDGE = 'fl0';

/** Metric of the kernel's own route to the pods: IP6_RT_PRIO_ADDRCONF (linux/ipv6_route.h), and the same for IPv4. */
const KERNEL_METRIC = 256;
/** Metrics of the route by which the node reaches its pods, which comes before the kernel's. */
const POD_METRIC: Readonly<Record<IPFamily, number>> = { ipv4: 0, ipv6: 128 };

/** A gateway of the pods: the bridge's address in one of the pods' networks. */
export interface PodGateway {
  readonly cidr: Cidr;
  readonly address: string;
}

export interface PodBridge {
  readonly socket: NetlinkSocket;
  readonly netns: NetnsRef | undefined;
  readonly mac: string;
  readonly mtu: number;
  readonly gateways: readonly PodGateway[];
}

/** Creates or adopts the bridge; returns its index, and a description of the differences. */
export function keepBridge({ socket, netns, mac, mtu, gateways }: PodBridge): {
  index: number;
  differences: string[];
} {
  const found = findLink(socket, POD_BRIDGE);
  if (found && found.kind !== 'bridge') {
    throw new FairleadError(
      `the network device ${POD_BRIDGE} is not a bridge but ${found.kind ?? 'something else'}`,
      {
        op: 'prepare node network',
        code: 'EEXIST',
        object: POD_BRIDGE,
        hint: `ip link delete ${POD_BRIDGE}`,
      },
    );
  }
  // Without an assigned MAC, a bridge uses the lowest MAC of its ports, which changes with the pods.
  if (!found)
    addLink(socket, { kind: 'bridge', name: POD_BRIDGE, mac, mtu, stp: false, multicastSnooping: false });
  const bridge = getLink(socket, POD_BRIDGE);
  const settings = {
    [`net/ipv4/conf/${POD_BRIDGE}/rp_filter`]: 2,
    [`net/ipv4/conf/${POD_BRIDGE}/send_redirects`]: 0,
    // Pods neither route for the node nor choose the route of their packets.
    [`net/ipv4/conf/${POD_BRIDGE}/accept_redirects`]: 0,
    [`net/ipv4/conf/${POD_BRIDGE}/accept_source_route`]: 0,
    [`net/ipv6/conf/${POD_BRIDGE}/accept_redirects`]: 0,
    [`net/ipv6/conf/${POD_BRIDGE}/accept_ra`]: 0,
    [`net/ipv6/conf/${POD_BRIDGE}/accept_dad`]: 0,
  };
  const addresses = gateways.map(({ address, cidr }) => ({
    address,
    prefix: cidr.prefix,
    metric: KERNEL_METRIC,
  }));
  return {
    index: bridge.index,
    differences: [
      ...(found ? [] : [`${POD_BRIDGE} was missing`]),
      ...writeDiffering(settings, netns),
      ...keepState(socket, bridge, { mtu, mac }),
      ...keepAddresses(socket, bridge, addresses),
    ],
  };
}

/** Networks behind the bridge, and the source addresses of the node's own packets to them. */
export interface BridgeRoutes {
  readonly socket: NetlinkSocket;
  readonly bridge: number;
  readonly gateways: readonly PodGateway[];
  readonly serviceCidrs: readonly string[];
  /** Returns the node's own address; null: it has none of the family. */
  nodeAddress(family: IPFamily): string | null;
  /** Returns the source of packets to Services. */
  serviceSource(family: IPFamily): string | null;
}

/**
 * Writes the routes of the bridge, and removes other ones of this program; returns a description of the differences.
 *
 * The node reaches its own pods from its own address. A process of the node that answers a pod's datagram leaves the source
 * to the route (a UDP socket that is bound to no address): the pod sent to the node's address, and expects it as the source.
 * The kernel's own route to the pods, with the bridge's address, is used while the node has no address.
 */
export function keepBridgeRoutes(routes: BridgeRoutes): string[] {
  const { socket, bridge, gateways, serviceCidrs, nodeAddress, serviceSource } = routes;
  const differences: string[] = [];
  const left = new Map<string, Route>();
  for (const route of listRoutes(socket, { device: bridge, protocol: ROUTE_PROTOCOL.fairlead }))
    left.set(route.destination, route);
  const keep = (cidr: Cidr, source: string | null, metric?: number) => {
    const found = left.get(cidr.text);
    left.delete(cidr.text);
    if (found && (found.source ?? null) === source) return;
    replaceRoute(socket, {
      destination: cidr.text,
      device: bridge,
      protocol: ROUTE_PROTOCOL.fairlead,
      ...(source === null ? {} : { source }),
      ...(metric === undefined ? {} : { metric }),
    });
    differences.push(`route to ${cidr.text}`);
  };
  for (const { cidr } of gateways) {
    const source = nodeAddress(cidr.family);
    if (source !== null) keep(cidr, source, POD_METRIC[cidr.family]);
  }
  for (const text of serviceCidrs) {
    const cidr = parseCidr(text);
    if (!cidr) throw badNetwork('serviceCidrs', text);
    keep(cidr, serviceSource(cidr.family));
  }
  for (const route of left.values()) {
    deleteRoute(socket, route);
    differences.push(`route to ${route.destination} was left`);
  }
  return differences;
}

/** Returns the gateway of a network of pods: its first address. */
export function gatewayOf(text: string): PodGateway {
  const cidr = parseCidr(text);
  if (!cidr) throw badNetwork('podCidrs', text);
  if (cidr.bytes.length * 8 - cidr.prefix < 2) {
    throw new FairleadError(`podCidrs: ${text} has no room for a gateway and a pod`, {
      op: 'prepare node network',
      code: 'bad-cidr',
      hint: 'use a network of /30 or larger (IPv6: /126) for the node',
    });
  }
  return { cidr, address: addressAt(cidr, 1) };
}

function badNetwork(field: string, text: string): FairleadError {
  return new FairleadError(`${field}: ${JSON.stringify(text)} is not a network such as 10.244.1.0/24`, {
    op: 'prepare node network',
    code: 'bad-cidr',
  });
}
