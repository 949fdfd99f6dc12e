import { createHash } from 'node:crypto';
import { addressAt, cidrsOverlap, formatAddress, type IPFamily, parseCidr } from '../lib/address.ts';
import { addressOf, type PeerNode } from './peer-node.ts';

/** The transport of packets between nodes: plain routes, if the nodes share a link, or VXLAN (RFC 7348). */
export type Overlay = 'routes' | 'vxlan';

/** A route to another node's pods, with the entries that VXLAN needs. */
export interface PodRoute {
  /** The pods' network. */
  readonly destination: string;
  /**
   * Next hop: the node's address. With VXLAN an address of the node's device: the first address of its
   * pods' network (IPv4), or the device's link-local address (IPv6, whose next hop must not be covered by
   * another route).
   */
  readonly via: string;
  readonly node: string;
  /** VXLAN: the MAC of the node's device, and the address of the tunnel's other end. */
  readonly tunnel: { readonly mac: string; readonly remote: string } | null;
}

/** The node for which routes are computed. */
export interface RoutingNode {
  readonly name: string;
  readonly podCidrs: readonly string[];
  readonly overlay: Overlay;
  /** Family of the tunnel's outer packets. */
  readonly tunnelFamily: IPFamily;
}

/**
 * Returns the MAC of a node's VXLAN device. It is derived from the node's name, so that other nodes know it from the Node
 * object, even before the node's agent has run and after its address has changed.
 */
export function tunnelMac(node: string): string {
  return localMac(`vxlan ${node}`);
}

/** Derives a locally administered unicast MAC from a text. */
export function localMac(text: string): string {
  const bytes = createHash('sha256').update(text).digest().subarray(0, 5);
  return ['02', ...Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0'))].join(':');
}

/**
 * Returns the routes of a node to the pods of other nodes, by destination. Nodes without pod networks or without an
 * address of the right family have none; of two nodes with the same network the first by name wins.
 */
export function podRoutes(self: RoutingNode, nodes: readonly PeerNode[]): Map<string, PodRoute> {
  const routes = new Map<string, PodRoute>();
  const taken = self.podCidrs.map((text) => parseCidr(text)).filter((cidr) => cidr !== null);
  const byName = nodes.filter((node) => node.name !== self.name).sort((a, b) => (a.name < b.name ? -1 : 1));
  const seen = new Set(taken.map((cidr) => cidr.text));
  for (const node of byName) {
    for (const text of node.podCidrs) {
      const cidr = parseCidr(text);
      if (!cidr || seen.has(cidr.text)) continue;
      if (taken.some((other) => cidrsOverlap(other, cidr))) continue;
      const route = routeTo(self, node, cidr.text, cidr.family, addressAt(cidr, 0));
      if (!route) continue;
      // Node networks are allocated from one range, so they are equal or disjoint; searching overlaps among
      // thousands would be quadratic.
      seen.add(cidr.text);
      routes.set(cidr.text, route);
    }
  }
  return routes;
}

function routeTo(
  self: RoutingNode,
  node: PeerNode,
  destination: string,
  family: IPFamily,
  first: string,
): PodRoute | null {
  if (self.overlay === 'routes') {
    const via = addressOf(node.addresses, family);
    return via === null ? null : { destination, via, node: node.name, tunnel: null };
  }
  const remote = addressOf(node.addresses, self.tunnelFamily);
  if (remote === null) return null;
  const mac = tunnelMac(node.name);
  return {
    destination,
    via: family === 'ipv4' ? first : linkLocal(mac),
    node: node.name,
    tunnel: { mac, remote },
  };
}

/** Returns the link-local address of a MAC (modified EUI-64, RFC 4291 appendix A). */
export function linkLocal(mac: string): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac.split(':').map((part) => Number.parseInt(part, 16));
  return formatAddress(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f));
}

/** Returns true if two routes are equal in the kernel. */
export function sameRoute(a: PodRoute, b: PodRoute): boolean {
  return a.via === b.via && a.tunnel?.mac === b.tunnel?.mac && a.tunnel?.remote === b.tunnel?.remote;
}
