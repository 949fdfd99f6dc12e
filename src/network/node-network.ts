import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { deleteLink, findLink, type Link, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { deleteRoute, listRoutes, ROUTE_PROTOCOL } from '../kernel/rtnetlink/routes.ts';
import { type Cidr, type IPFamily, parseCidr } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { removeConnectionBound } from './connection-bound.ts';
import type { MaintainedState } from './drift-watch.ts';
import { type Egress, openEgress, removeEgress } from './egress.ts';
import { removeHostPorts } from './host-ports.ts';
import { type GatewaySources, type NodeSources, openNodeSources, removeNodeSources } from './node-sources.ts';
import { localMac, type Overlay, type PodRoute, podRoutes, sameRoute } from './overlay-routes.ts';
import { addressOf, type PeerNode } from './peer-node.ts';
import { gatewayOf, keepBridge, keepBridgeRoutes, POD_BRIDGE, type PodGateway } from './pod-bridge.ts';
import { type KernelRoutes, readPodRoutes, removePodRoute, writePodRoute } from './pod-route-writer.ts';
import { removeSourceGuard } from './source-guard.ts';
import { keepTunnel, removeTunnel, TUNNEL, TUNNEL_OVERHEAD, VXLAN_PORT } from './tunnel-device.ts';
import { removeUnusedAddresses } from './unused-addresses.ts';
import { findUplink, prepareForwarding, recordUplink, restoreUplink, type Uplink } from './uplink.ts';

/** RFC 8200, section 5 */
const IPV6_MIN_MTU = 1280;

export interface NodeNetworkOptions {
  readonly node: string;
  /** Addresses of this node (InternalIP). */
  readonly addresses: readonly string[];
  /** Networks of this node's pods, one per family. */
  readonly podCidrs: readonly string[];
  readonly overlay: Overlay;
  /**
   * Service networks that processes of this node must reach. A packet needs a route before it reaches the
   * rules that redirect it; a node with a default route does not need these. Default: none.
   */
  readonly serviceCidrs?: readonly string[];
  /** Whether traffic from pods to addresses outside the cluster is masqueraded. Default: false. */
  readonly masquerade?: boolean;
  /** VXLAN network identifier and UDP port; default 4242 and 4789 (RFC 7348). */
  readonly vxlan?: { readonly id?: number; readonly port?: number };
  /** Whether this program owns the device with the node's addresses, and keeps it up, with its addresses. Default: false. */
  readonly ownsUplink?: boolean;
  /** The node's namespace; default: that of this thread. */
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock;
  readonly logger?: Logger;
}

/** A route that could not be written. */
export interface RouteFailure {
  readonly node: string;
  readonly destination: string;
  readonly error: FairleadError;
}

/** enum rt_scope_t: not of the link or the host alone. */
const RT_SCOPE_UNIVERSE = 0;

/**
 * A node's part of the pod network: the bridge of its pods and the routes to pods of other nodes. The
 * kernel's state stays when this object is closed, and the next one adopts it without flushing it.
 */
export class NodeNetwork {
  readonly bridgeMac: string;
  readonly gateways: readonly PodGateway[];
  readonly netns: NetnsRef | undefined;
  /** A socket for attaching devices to the bridge. */
  readonly socket: NetlinkSocket;
  #options: NodeNetworkOptions;
  #tunnelFamily: IPFamily;
  #bridge: number;
  #tunnel: number | null;
  #uplink: Uplink;
  #mtu: number;
  /** Repairs since the last call. */
  #repaired: string[] = [];
  readonly #egress: Egress | null;
  readonly #sources: NodeSources;
  #gateways: GatewaySources | null = null;
  /** The kernel's routes, by destination; null: not read yet. */
  #routes: Map<string, PodRoute> | null = null;

  /** Creates missing objects and adopts existing ones. Throws FairleadError with the kernel's error. */
  constructor(options: NodeNetworkOptions) {
    this.#options = options;
    this.netns = options.netns;
    this.gateways = options.podCidrs.map(gatewayOf);
    this.#tunnelFamily = tunnelFamilyOf(options.addresses);
    this.bridgeMac = localMac(`bridge ${options.node}`);
    this.socket = openRouteSocket(options.netns);
    try {
      const uplink = findUplink(this.socket, options.addresses);
      this.#uplink = recordUplink(this.socket, uplink, options.addresses);
      this.#prepareForwarding();
      this.#mtu = this.#mtuOver(uplink);
      const tooSmall = this.#mtuProblem(uplink);
      if (tooSmall) throw tooSmall;
      this.#bridge = this.#ensureBridge();
      this.#tunnel = this.#ensureTunnel(uplink);
      this.#ensureBridgeRoutes();
      const own = this.gateways.map(({ cidr }) => cidr);
      this.#egress = options.masquerade ? openEgress({ ...options, podCidrs: own }) : null;
      this.#sources = openNodeSources({ ...options, bridge: POD_BRIDGE });
      this.#repaired = [];
    } catch (error) {
      this.socket.close();
      throw error;
    }
  }

  /** The name of the device with the node's address, through which it reaches the others. */
  get uplink(): string {
    return this.#uplink.name;
  }

  /** The maximum size of packets between pods of different nodes; it follows the uplink's. */
  get mtu(): number {
    return this.#mtu;
  }

  /** Returns the networks of the node's links: of its devices but loopback, the pods' bridge and the tunnel. */
  linkNetworks(): Cidr[] {
    const own = new Set([findLink(this.socket, 'lo')?.index, this.#bridge, this.#tunnel]);
    const networks = listAddresses(this.socket)
      .filter(({ device, scope }) => !own.has(device) && scope === RT_SCOPE_UNIVERSE)
      .flatMap(({ address, prefix }) => parseCidr(`${address}/${prefix}`) ?? [])
      .filter(({ prefix, bytes }) => prefix < bytes.length * 8);
    return [...new Map(networks.map((one) => [one.text, one])).values()];
  }

  /** The index of the bridge; `repair` changes it if another program removed the bridge. */
  get bridge(): number {
    return this.#bridge;
  }

  /** The name of the tunnel; null: packets to other nodes are routed. */
  get tunnel(): string | null {
    return this.#tunnel === null ? null : TUNNEL;
  }

  /** Sets the egress gateways, from which answers of hosts outside may come through the tunnel. Written by the next `syncRoutes`. */
  setGateways(gateways: GatewaySources | null): void {
    this.#gateways = gateways;
  }

  /**
   * Returns by node and family how packets reach a node, whatever their destination; `nodes` as in `syncRoutes`.
   */
  nextHops(nodes: readonly PeerNode[]): Map<string, Partial<Record<IPFamily, string>>> {
    const hops = new Map<string, Partial<Record<IPFamily, string>>>();
    for (const route of this.#podRoutes(nodes).values()) {
      const family = route.destination.includes(':') ? 'ipv6' : 'ipv4';
      const known = hops.get(route.node) ?? {};
      hops.set(route.node, { ...known, [family]: known[family] ?? route.via });
    }
    return hops;
  }

  #podRoutes(nodes: readonly PeerNode[]): Map<string, PodRoute> {
    return podRoutes(
      {
        name: this.#options.node,
        podCidrs: this.gateways.map((gateway) => gateway.cidr.text),
        overlay: this.#options.overlay,
        tunnelFamily: this.#tunnelFamily,
      },
      nodes,
    );
  }

  /**
   * Writes the routes to the pods of these nodes (this one may be included) and removes those of other nodes.
   * Writes only differences, so that other nodes' traffic is not disturbed. Returns the routes that could not be written;
   * the next call retries them.
   */
  syncRoutes(nodes: readonly PeerNode[]): RouteFailure[] {
    this.#writeSources(nodes);
    this.#egress?.write([
      ...nodes,
      { name: this.#options.node, addresses: this.#options.addresses, podCidrs: [] },
    ]);
    const wanted = this.#podRoutes(nodes);
    const kernel = this.#kernelRoutes();
    const present = this.#routes ?? readPodRoutes(kernel);
    this.#routes = present;
    const failures: RouteFailure[] = [];
    const attempt = (route: PodRoute, work: () => void) => {
      try {
        work();
        return true;
      } catch (error) {
        // The kernel's state is unknown.
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
      if (!attempt(route, () => writePodRoute(kernel, route, current))) continue;
      present.set(destination, route);
      this.#repaired.push(`route to ${destination}`);
    }
    for (const [destination, route] of present) {
      if (wanted.has(destination)) continue;
      if (attempt(route, () => removePodRoute(kernel, route, wanted))) present.delete(destination);
    }
    return failures;
  }

  /**
   * Changes this node's addresses, the source of its tunnel and of its packets. The next `syncRoutes`
   * updates the routes. Throws if no device has the first address (yet); then nothing changes.
   */
  moveTo(addresses: readonly string[]): void {
    if (addresses.join() === this.#options.addresses.join()) return;
    const options = { ...this.#options, addresses };
    const uplink = findUplink(this.socket, addresses);
    this.#options = options;
    this.#uplink = recordUplink(this.socket, uplink, addresses);
    this.#prepareForwarding();
    this.#tunnelFamily = tunnelFamilyOf(addresses);
    if (!this.#mtuProblem(uplink)) this.#mtu = this.#mtuOver(uplink);
    this.#bridge = this.#ensureBridge();
    this.#tunnel = this.#ensureTunnel(uplink);
    this.#ensureBridgeRoutes();
    // A new tunnel has no routes yet, and other nodes may still use this node's previous address.
    this.#routes = null;
  }

  /**
   * Works like `syncRoutes`, but first compares the whole node network with the kernel: reverts changes by
   * other programs, and describes them. Throws if the node's address is missing and this program does not
   * own it.
   */
  async repair(nodes: readonly PeerNode[]): Promise<{ repaired: string[]; failures: RouteFailure[] }> {
    this.#repaired = this.#options.ownsUplink ? restoreUplink(this.socket, this.#uplink) : [];
    const uplink = findUplink(this.socket, this.#options.addresses);
    const tooSmall = this.#mtuProblem(uplink);
    if (!tooSmall) this.#mtu = this.#mtuOver(uplink);
    this.#prepareForwarding();
    this.#bridge = this.#ensureBridge();
    this.#tunnel = this.#ensureTunnel(uplink);
    this.#ensureBridgeRoutes();
    this.#routes = null;
    const failures = this.syncRoutes(nodes);
    for (const { cidr } of tooSmall ? this.gateways : []) {
      if (tooSmall && cidr.family === 'ipv6')
        failures.push({ node: this.#options.node, destination: cidr.text, error: tooSmall });
    }
    const tables = [...(await this.#sources.check()), ...((await this.#egress?.check()) ?? [])];
    return { repaired: [...this.#repaired, ...tables], failures };
  }

  /** Selects the events of this network; `podMac` returns the MAC of a pod's address. */
  maintainedState(
    isPort: (name: string) => boolean,
    podMac: (address: string) => string | null,
  ): MaintainedState {
    const isDevice = (index: number) =>
      index === this.#bridge ||
      index === this.#tunnel ||
      index === findLink(this.socket, this.#uplink.name)?.index;
    const network = this;
    return {
      isDevice,
      isPort,
      get bridge() {
        return network.#bridge;
      },
      isDestination: (destination) =>
        this.#routes?.has(destination) ||
        this.#options.serviceCidrs?.includes(destination) ||
        this.gateways.some(({ cidr }) => cidr.text === destination),
      neighbourMac: (address) =>
        podMac(address) ??
        [...(this.#routes?.values() ?? [])].find(({ via }) => via === address)?.tunnel?.mac ??
        null,
    };
  }

  /** Removes all parts of a node network, and closes. Pods on the bridge lose their network. */
  remove(): void {
    // This connection owns the tables: another one could not remove them.
    this.#egress?.close();
    this.#sources.close();
    removeNodeNetwork(this.netns);
    this.close();
  }

  /** Stops; the network stays. */
  close(): void {
    this.#egress?.close();
    this.#sources.close();
    this.socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #mtuOver(uplink: Link): number {
    return uplink.mtu - (this.#options.overlay === 'vxlan' ? TUNNEL_OVERHEAD[this.#tunnelFamily] : 0);
  }

  /** Returns an error if the uplink is too small for pods with IPv6: the kernel takes IPv6 from their bridge. */
  #mtuProblem(uplink: Link): FairleadError | null {
    const mtu = this.#mtuOver(uplink);
    if (mtu >= IPV6_MIN_MTU || !this.gateways.some(({ cidr }) => cidr.family === 'ipv6')) return null;
    return new FairleadError(
      `${uplink.name} has the MTU ${uplink.mtu}, which leaves ${mtu} bytes to packets of pods: IPv6 needs ${IPV6_MIN_MTU}`,
      {
        op: 'prepare node network',
        code: 'EINVAL',
        object: uplink.name,
        hint: `ip link set ${uplink.name} mtu ${uplink.mtu - mtu + IPV6_MIN_MTU}`,
      },
    );
  }

  #ensureBridge(): number {
    const { socket, netns, bridgeMac: mac, mtu, gateways } = this;
    const { index, differences } = keepBridge({ socket, netns, mac, mtu, gateways });
    this.#repaired.push(...differences);
    return index;
  }

  /** Returns the VXLAN device; null: none. */
  #ensureTunnel(uplink: Link): number | null {
    const { socket, netns, mtu, gateways } = this;
    const { overlay, vxlan, node, addresses } = this.#options;
    if (overlay !== 'vxlan') {
      removeTunnel(socket);
      return null;
    }
    const local = addressOf(addresses, this.#tunnelFamily) ?? '';
    const { index, differences } = keepTunnel({ socket, netns, node, uplink, local, mtu, gateways, vxlan });
    this.#repaired.push(...differences);
    return index;
  }

  #prepareForwarding(): void {
    const { overlay, ownsUplink = false, netns } = this.#options;
    const families = new Set(this.gateways.map(({ cidr }) => cidr.family));
    const settings = { families, tunnelled: overlay === 'vxlan', owned: ownsUplink, netns };
    this.#repaired.push(...prepareForwarding(this.#uplink.name, settings));
  }

  #writeSources(nodes: readonly PeerNode[]): void {
    const local = addressOf(this.#options.addresses, this.#tunnelFamily);
    this.#sources.write({
      podCidrs: this.gateways.map(({ cidr }) => cidr),
      nodes: nodes.filter(({ name }) => name !== this.#options.node),
      tunnel:
        this.#options.overlay === 'vxlan' && local !== null
          ? { port: this.#options.vxlan?.port ?? VXLAN_PORT, device: TUNNEL, local }
          : null,
      gateways: this.#gateways,
    });
  }

  #ensureBridgeRoutes(): void {
    this.#repaired.push(
      ...keepBridgeRoutes({
        socket: this.socket,
        bridge: this.#bridge,
        gateways: this.gateways,
        serviceCidrs: this.#options.serviceCidrs ?? [],
        nodeAddress: (family) => addressOf(this.#options.addresses, family),
        serviceSource: (family) => this.#sourceAddress(family),
      }),
    );
  }

  /**
   * Returns the source address of this node's packets to pods of other nodes. Through a tunnel it must be the bridge's
   * address, whose replies return through the tunnel.
   */
  #sourceAddress(family: IPFamily): string | null {
    const gateway = this.gateways.find((other) => other.cidr.family === family)?.address ?? null;
    return this.#options.overlay === 'vxlan'
      ? gateway
      : (addressOf(this.#options.addresses, family) ?? gateway);
  }

  #kernelRoutes(): KernelRoutes {
    const { socket } = this;
    return {
      socket,
      bridge: this.#bridge,
      tunnel: this.#tunnel,
      sourceAddress: (family) => this.#sourceAddress(family),
    };
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

/** Accepts the outer packets of the tunnel. */
const tunnelFamilyOf = (addresses: readonly string[]): IPFamily =>
  addressOf(addresses, 'ipv4') === null ? 'ipv6' : 'ipv4';

/** Removes all parts of node networks, of any agent. Pods on the bridge lose their network. */
export function removeNodeNetwork(netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  for (const family of ['ipv4', 'ipv6'] as const) {
    for (const route of listRoutes(socket, { family, protocol: ROUTE_PROTOCOL.fairlead })) {
      deleteRoute(socket, route);
    }
  }
  removeHostPorts(POD_BRIDGE, netns);
  removeEgress(netns);
  removeTunnel(socket);
  deleteLink(socket, POD_BRIDGE);
  removeSourceGuard(netns);
  removeNodeSources(netns);
  removeUnusedAddresses(netns);
  removeConnectionBound(netns);
}
