import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { addAddress, deleteAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import {
  addLink,
  deleteLink,
  findLink,
  getLink,
  type Link,
  openRouteSocket,
  setLink,
} from '../kernel/rtnetlink/links.ts';
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
import { readSysctl, writeSysctl, writeSysctls } from '../kernel/sysctl.ts';
import { addressAt, type Cidr, type IPFamily, parseCidr } from '../lib/address.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { type Egress, openEgress, removeEgress } from './egress.ts';
import { removeHostPorts } from './host-ports.ts';
import { localMac, type Overlay, type PodRoute, podRoutes, sameRoute, tunnelMac } from './overlay-routes.ts';
import { addressOf, type PeerNode } from './peer-node.ts';

/** The bridge that a node's pods are plugged into. */
export const POD_BRIDGE = 'fl0';
/** The VXLAN device. */
export const TUNNEL = 'fl.vxlan';

/** Bytes that VXLAN adds to a packet: outer IP, UDP, VXLAN and inner Ethernet headers. */
const TUNNEL_OVERHEAD = { ipv4: 50, ipv6: 70 } as const;

export interface NodeNetworkOptions {
  readonly node: string;
  /** Addresses of this node (InternalIP). */
  readonly addresses: readonly string[];
  /** Networks of this node's pods, one per family. */
  readonly podCidrs: readonly string[];
  readonly overlay: Overlay;
  /**
   * Networks of Services that this node's own processes are to reach. A packet needs a route before the rules that
   * redirect it see it; a node with a default route needs none of these. Default: none.
   */
  readonly serviceCidrs?: readonly string[];
  /** Whether pods reach what is not of the cluster by the node's own address. Default: false. */
  readonly masquerade?: boolean;
  /** VXLAN network identifier and UDP port; default 4242 and 4789 (RFC 7348). */
  readonly vxlan?: { readonly id?: number; readonly port?: number };
  /** The node's namespace; default: that of this thread. */
  readonly netns?: NetnsRef;
}

/** A route that could not be written; the others were. */
export interface RouteFailure {
  readonly node: string;
  readonly destination: string;
  readonly error: FairleadError;
}

/** A gateway of the pods: the bridge's address in one of the pods' networks. */
export interface PodGateway {
  readonly cidr: Cidr;
  readonly address: string;
}

/**
 * A node's part of the pod network: the bridge of its pods and the routes to those of other nodes. It stays when
 * this object is closed, and the next one adopts what it finds: nothing is flushed.
 */
export class NodeNetwork {
  /** Index of the bridge. */
  readonly bridge: number;
  readonly bridgeMac: string;
  readonly gateways: readonly PodGateway[];
  /** Largest packet that pods can send to pods of other nodes. */
  readonly mtu: number;
  readonly netns: NetnsRef | undefined;
  /** For attaching devices to the bridge. */
  readonly socket: NetlinkSocket;
  #options: NodeNetworkOptions;
  #tunnelFamily: IPFamily;
  #tunnel: number | null;
  readonly #egress: Egress | null;
  /** Routes as the kernel has them, by destination; null: to be read. */
  #routes: Map<string, PodRoute> | null = null;

  /** Makes what is missing, adopts what is there. Throws FairleadError naming what the kernel refused. */
  constructor(options: NodeNetworkOptions) {
    this.#options = options;
    this.netns = options.netns;
    this.gateways = options.podCidrs.map(gatewayOf);
    this.#tunnelFamily = tunnelFamilyOf(options.addresses);
    this.bridgeMac = localMac(`bridge ${options.node}`);
    this.socket = openRouteSocket(options.netns);
    try {
      const uplink = findUplink(this.socket, options.addresses);
      enableForwarding(uplink, options);
      this.mtu = uplink.mtu - (options.overlay === 'vxlan' ? TUNNEL_OVERHEAD[this.#tunnelFamily] : 0);
      this.bridge = this.#ensureBridge();
      this.#tunnel = this.#ensureTunnel(uplink);
      this.#ensureServiceRoutes();
      const own = this.gateways.map(({ cidr }) => cidr);
      this.#egress = options.masquerade ? openEgress(own, options.netns) : null;
    } catch (error) {
      this.socket.close();
      throw error;
    }
  }

  /**
   * Writes the routes to the pods of these nodes (this one may be among them) and removes those of nodes that are
   * gone. Only differences are written: other nodes' traffic is not disturbed. Returns what could not be written;
   * it is tried again by the next call.
   */
  syncRoutes(nodes: readonly PeerNode[]): RouteFailure[] {
    this.#egress?.write([
      ...nodes,
      { name: this.#options.node, addresses: this.#options.addresses, podCidrs: [] },
    ]);
    const wanted = podRoutes(
      {
        name: this.#options.node,
        podCidrs: this.gateways.map((gateway) => gateway.cidr.text),
        overlay: this.#options.overlay,
        tunnelFamily: this.#tunnelFamily,
      },
      nodes,
    );
    const present = this.#routes ?? this.#readRoutes();
    this.#routes = present;
    const failures: RouteFailure[] = [];
    const attempt = (route: PodRoute, work: () => void) => {
      try {
        work();
        return true;
      } catch (error) {
        // What the kernel has is not known any more.
        this.#routes = null;
        failures.push({
          node: route.node,
          destination: route.destination,
          error: this.#routeError(route, error),
        });
        return false;
      }
    };
    for (const [destination, route] of wanted) {
      const current = present.get(destination);
      if (current && sameRoute(current, route)) continue;
      if (attempt(route, () => this.#writeRoute(route, current))) present.set(destination, route);
    }
    for (const [destination, route] of present) {
      if (wanted.has(destination)) continue;
      if (attempt(route, () => this.#removeRoute(route, wanted))) present.delete(destination);
    }
    return failures;
  }

  /**
   * This node has other addresses: its tunnel and its own packets go out from there. The routes follow with the next
   * `syncRoutes`. Throws where no device has the first of them (yet); then everything stays as it was.
   */
  moveTo(addresses: readonly string[]): void {
    if (addresses.join() === this.#options.addresses.join()) return;
    const options = { ...this.#options, addresses };
    const uplink = findUplink(this.socket, addresses);
    enableForwarding(uplink, options);
    this.#options = options;
    this.#tunnelFamily = tunnelFamilyOf(addresses);
    this.#tunnel = this.#ensureTunnel(uplink);
    this.#ensureServiceRoutes();
    // A new tunnel has none yet, and others may name this node's earlier address.
    this.#routes = null;
  }

  /** As `syncRoutes`, after reading from the kernel what is there: repairs what others changed. */
  repairRoutes(nodes: readonly PeerNode[]): RouteFailure[] {
    this.#routes = null;
    return this.syncRoutes(nodes);
  }

  /** Removes all that a node network is made of, and closes. Pods on the bridge lose their network. */
  remove(): void {
    removeNodeNetwork(this.netns);
    this.close();
  }

  /** Stops; the network stays as it is. */
  close(): void {
    this.#egress?.close();
    this.socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #ensureBridge(): number {
    const { socket } = this;
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
    if (!found) {
      // A bridge without a MAC of its own takes the lowest of its ports', which changes as pods come and go.
      addLink(socket, {
        kind: 'bridge',
        name: POD_BRIDGE,
        mac: this.bridgeMac,
        mtu: this.mtu,
        stp: false,
        multicastSnooping: false,
      });
    }
    const bridge = getLink(socket, POD_BRIDGE);
    writeSysctls(
      {
        [`net/ipv4/conf/${POD_BRIDGE}/rp_filter`]: 2,
        [`net/ipv4/conf/${POD_BRIDGE}/send_redirects`]: 0,
        [`net/ipv6/conf/${POD_BRIDGE}/accept_ra`]: 0,
        [`net/ipv6/conf/${POD_BRIDGE}/accept_dad`]: 0,
      },
      this.netns,
    );
    if (bridge.mtu !== this.mtu || bridge.mac !== this.bridgeMac || !bridge.up) {
      setLink(socket, bridge.index, { mtu: this.mtu, mac: this.bridgeMac, up: true });
    }
    this.#ensureAddresses(
      bridge.index,
      this.gateways.map(({ address, cidr }) => ({ address, prefix: cidr.prefix })),
    );
    return bridge.index;
  }

  /** The VXLAN device, or null without one; one that differs in unchangeable attributes is made again. */
  #ensureTunnel(uplink: Link): number | null {
    const { socket } = this;
    const { overlay, vxlan, node, addresses } = this.#options;
    const found = findLink(socket, TUNNEL);
    if (overlay !== 'vxlan') {
      if (found) deleteLink(socket, found.index);
      return null;
    }
    const id = vxlan?.id ?? 4242;
    const port = vxlan?.port ?? 4789;
    const local = addressOf(addresses, this.#tunnelFamily) ?? '';
    const mac = tunnelMac(node);
    const fits =
      found?.vxlan?.id === id &&
      found.vxlan.port === port &&
      found.vxlan.local === local &&
      found.vxlan.device === uplink.index &&
      !found.vxlan.learning;
    if (found && !fits) deleteLink(socket, found.index);
    if (!found || !fits) {
      addLink(socket, {
        kind: 'vxlan',
        name: TUNNEL,
        id,
        port,
        local,
        device: uplink.index,
        learning: false,
        mac,
        mtu: this.mtu,
        // The inner packets carry checksums of their own.
        outerChecksum: false,
      });
    }
    const tunnel = getLink(socket, TUNNEL);
    writeSysctls(
      {
        [`net/ipv4/conf/${TUNNEL}/rp_filter`]: 2,
        [`net/ipv6/conf/${TUNNEL}/accept_ra`]: 0,
        [`net/ipv6/conf/${TUNNEL}/accept_dad`]: 0,
      },
      this.netns,
    );
    if (tunnel.mtu !== this.mtu || tunnel.mac !== mac || !tunnel.up) {
      setLink(socket, tunnel.index, { mtu: this.mtu, mac, up: true });
    }
    // The tunnel's own end of the next hops that the others have. Needed by no packet, but the kernel's check of
    // sources, even a loose one, refuses everything that comes by a device without an IPv4 address.
    this.#ensureAddresses(
      tunnel.index,
      this.gateways
        .filter(({ cidr }) => cidr.family === 'ipv4')
        .map(({ cidr }) => ({ address: addressAt(cidr, 0), prefix: 32 })),
    );
    return tunnel.index;
  }

  /** Gives a device of ours these addresses and no others, but for link-local ones of IPv6. */
  #ensureAddresses(device: number, wanted: readonly { address: string; prefix: number }[]): void {
    const present = new Map(
      listAddresses(this.socket, { device })
        .filter((entry) => !entry.address.startsWith('fe80:'))
        .map((entry) => [`${entry.address}/${entry.prefix}`, entry]),
    );
    for (const { address, prefix } of wanted) {
      if (!present.delete(`${address}/${prefix}`)) addAddress(this.socket, { device, address, prefix });
    }
    // Left by a pod network that this node had before.
    for (const address of present.values()) deleteAddress(this.socket, address);
  }

  #ensureServiceRoutes(): void {
    for (const text of this.#options.serviceCidrs ?? []) {
      const cidr = parseCidr(text);
      if (!cidr) throw badNetwork('serviceCidrs', text);
      const source = this.#sourceAddress(cidr.family);
      replaceRoute(this.socket, {
        destination: cidr.text,
        device: this.bridge,
        protocol: ROUTE_PROTOCOL.fairlead,
        ...(source === null ? {} : { source }),
      });
    }
  }

  /**
   * The address that this node's own packets to pods carry. Through a tunnel it must be one whose answers come back
   * through the tunnel: the bridge's.
   */
  #sourceAddress(family: IPFamily): string | null {
    const gateway = this.gateways.find((other) => other.cidr.family === family)?.address ?? null;
    return this.#options.overlay === 'vxlan'
      ? gateway
      : (addressOf(this.#options.addresses, family) ?? gateway);
  }

  #kernelRoute(route: PodRoute): Route {
    const cidr = parseCidr(route.destination);
    const source = cidr && this.#sourceAddress(cidr.family);
    return {
      destination: route.destination,
      via: route.via,
      protocol: ROUTE_PROTOCOL.fairlead,
      ...(source ? { source } : {}),
      ...(this.#tunnel === null ? {} : { device: this.#tunnel }),
      // An IPv6 next hop is link-local, which every device has a route to.
      ...(this.#tunnel === null || cidr?.family === 'ipv6' ? {} : { onlink: true }),
    };
  }

  #writeRoute(route: PodRoute, current: PodRoute | undefined): void {
    if (route.tunnel && this.#tunnel !== null) {
      const device = this.#tunnel;
      // From the far end to the near: when the route is there, all that it needs is.
      replaceForwardingEntry(this.socket, { device, mac: route.tunnel.mac, remote: route.tunnel.remote });
      replaceNeighbour(this.socket, { device, address: route.via, mac: route.tunnel.mac });
    }
    if (current?.via !== route.via) replaceRoute(this.socket, this.#kernelRoute(route));
  }

  #removeRoute(route: PodRoute, wanted: ReadonlyMap<string, PodRoute>): void {
    deleteRoute(this.socket, { destination: route.destination, protocol: ROUTE_PROTOCOL.fairlead });
    if (!route.tunnel || this.#tunnel === null) return;
    const { mac } = route.tunnel;
    const others = [...wanted.values()];
    if (!others.some((other) => other.via === route.via)) {
      deleteNeighbour(this.socket, { device: this.#tunnel, address: route.via });
    }
    // A node has one entry for its device, however many networks it has.
    if (others.some((other) => other.tunnel?.mac === mac)) return;
    deleteForwardingEntry(this.socket, { device: this.#tunnel, mac, remote: route.tunnel.remote });
  }

  /** Reads which routes are there. One that is incomplete (no neighbour, no tunnel) is shown with what it lacks. */
  #readRoutes(): Map<string, PodRoute> {
    const { socket } = this;
    const device = this.#tunnel;
    const macs = new Map(
      device === null
        ? []
        : listNeighbours(socket, { device }).map((entry) => [entry.address, entry.mac ?? '']),
    );
    const remotes = new Map(
      device === null
        ? []
        : listForwardingEntries(socket, device).map((entry) => [entry.mac, entry.remote ?? '']),
    );
    const routes = new Map<string, PodRoute>();
    for (const family of ['ipv4', 'ipv6'] as const) {
      for (const route of listRoutes(socket, { family, protocol: ROUTE_PROTOCOL.fairlead })) {
        if (route.device === this.bridge) continue;
        const mac = macs.get(route.via ?? '') ?? '';
        const inTunnel = device !== null && route.device === device;
        const expected = this.#sourceAddress(family);
        // A route that is in the wrong device, or with an address that this node had before, is to be written again.
        const right = (device === null || inTunnel) && (expected === null || route.source === expected);
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

  #routeError(route: PodRoute, error: unknown): FairleadError {
    const code = error instanceof FairleadError ? error.code : 'EIO';
    const offLink = this.#options.overlay === 'routes' && (code === 'ENETUNREACH' || code === 'EHOSTUNREACH');
    return new FairleadError(
      `no route to the pods of ${route.node} (${route.destination}): ${messageOf(error)}`,
      {
        op: 'write pod route',
        code: errorCode(code),
        object: route.node,
        cause: error,
        ...(offLink ? { hint: `${route.via} is not on a link of this node: use --overlay vxlan` } : {}),
      },
    );
  }
}

/** What other nodes' packets to this one are wrapped in. */
const tunnelFamilyOf = (addresses: readonly string[]): IPFamily =>
  addressOf(addresses, 'ipv4') === null ? 'ipv6' : 'ipv4';

function gatewayOf(text: string): PodGateway {
  const cidr = parseCidr(text);
  if (!cidr) throw badNetwork('podCidrs', text);
  if (cidr.bytes.length * 8 - cidr.prefix < 2) {
    throw new FairleadError(`podCidrs: ${text} has no room for a gateway and a pod`, {
      op: 'prepare node network',
      code: 'bad-cidr',
      hint: 'give the node a network of /30 or larger (IPv6: /126)',
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

/** The device that has the node's first address. */
function findUplink(socket: NetlinkSocket, addresses: readonly string[]): Link {
  const [first] = addresses;
  const found = listAddresses(socket).find((entry) => entry.address === first);
  if (found) return getLink(socket, found.device);
  throw new FairleadError(`no network device has the node's address ${first ?? '(none given)'}`, {
    op: 'prepare node network',
    code: 'EADDRNOTAVAIL',
    hint: 'give the node an address that this machine has',
  });
}

/** Removes what node networks are made of, whichever agent made them. Pods on the bridge lose their network. */
export function removeNodeNetwork(netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  for (const family of ['ipv4', 'ipv6'] as const) {
    for (const route of listRoutes(socket, { family, protocol: ROUTE_PROTOCOL.fairlead })) {
      deleteRoute(socket, route);
    }
  }
  removeHostPorts(POD_BRIDGE, netns);
  removeEgress(netns);
  deleteLink(socket, TUNNEL);
  deleteLink(socket, POD_BRIDGE);
}

/** Lets the node pass packets on, in the families of its pods. */
function enableForwarding(uplink: Link, options: NodeNetworkOptions): void {
  const families = new Set(options.podCidrs.map((text) => gatewayOf(text).cidr.family));
  if (families.has('ipv4')) writeSysctl('net.ipv4.ip_forward', 1, options.netns);
  // Pods of this node reach each other by the device that they came in by, and are not to be told of a shorter way;
  // nor are clients outside whose way to a Service's address is this node, which has no other. Each redirect, sent or
  // kept back, would also use up what the kernel grants a host of ICMP messages, and with it refusals of datagrams.
  // The kernel sends redirects where this or the device's own switch is on, so other devices keep to their own.
  if (families.has('ipv4')) {
    writeSysctl('net.ipv4.conf.all.send_redirects', 0, options.netns);
    writeSysctl(`net/ipv4/conf/${uplink.name}/send_redirects`, 0, options.netns);
  }
  if (families.has('ipv4') && options.overlay === 'vxlan') loosenSourceCheck(uplink.name, options.netns);
  if (!families.has('ipv6')) return;
  // A router ignores router advertisements unless told 2: a node that has its default route from them would lose it.
  const acceptRa = `net/ipv6/conf/${uplink.name}/accept_ra`;
  if (readSysctl(acceptRa, options.netns) === '1') writeSysctl(acceptRa, 2, options.netns);
  writeSysctl('net.ipv6.conf.all.forwarding', 1, options.netns);
}

/**
 * A pod that speaks to this node's own address comes by the uplink, while the way back to it is the tunnel: a strict
 * check of sources would drop it. The kernel takes the stricter of "all" and the device's own, but 2 (loose) beats 1.
 */
function loosenSourceCheck(device: string, netns: NetnsRef | undefined): void {
  const own = `net/ipv4/conf/${device}/rp_filter`;
  const values = [readSysctl(own, netns), readSysctl('net.ipv4.conf.all.rp_filter', netns)];
  if (values.includes('1') && !values.includes('2')) writeSysctl(own, 2, netns);
}
