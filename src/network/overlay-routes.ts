import { createHash } from 'node:crypto';
import { addressAt, cidrsOverlap, formatAddress, type IPFamily, parseCidr } from '../lib/address.ts';
import { addressOf, type PeerNode } from './peer-node.ts';

/** How packets travel from node to node: plainly, where the nodes share a link, or in VXLAN (RFC 7348). */
export type Overlay = 'routes' | 'vxlan';

/** A route to another node's pods, with what VXLAN needs beside it. */
export interface PodRoute {
  /** The pods' network. */
  readonly destination: string;
  /**
   * Next hop: the node's own address. With VXLAN one that stands for the node's device: the first address of its
   * pods' network (IPv4), or the device's link-local address (IPv6, which wants a next hop that no other route covers).
   */
  readonly via: string;
  readonly node: string;
  /** VXLAN: the MAC of the node's device, and the address of the tunnel's other end. */
  readonly tunnel: { readonly mac: string; readonly remote: string } | null;
}

/** The node whose routes are asked for. */
export interface RoutingNode {
  readonly name: string;
  readonly podCidrs: readonly string[];
  readonly overlay: Overlay;
  /** Family of the tunnel's outer packets. */
  readonly tunnelFamily: IPFamily;
}

/**
 * The MAC of a node's VXLAN device. It follows from the node's name, so that the Node object says all that its
 * neighbours need, also before its agent ran and after its address changed.
 */
export function tunnelMac(node: string): string {
  return localMac(`vxlan ${node}`);
}

/** A locally administered unicast MAC that follows from a text. */
export function localMac(text: string): string {
  const bytes = createHash('sha256').update(text).digest().subarray(0, 5);
  return ['02', ...Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0'))].join(':');
}

/**
 * The routes that a node needs to the pods of the others, by destination. Nodes without pod networks or without an
 * address of the right family have none; of two nodes that claim the same network the first by name wins.
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
      // Node networks are cut from one range, so they are equal or disjoint; looking for every overlap among
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

/** The link-local address that follows from a MAC (modified EUI-64, RFC 4291 appendix A). */
export function linkLocal(mac: string): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac.split(':').map((part) => Number.parseInt(part, 16));
  return formatAddress(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f));
}

/** True when two routes are the same in the kernel. */
export function sameRoute(a: PodRoute, b: PodRoute): boolean {
  return a.via === b.via && a.tunnel?.mac === b.tunnel?.mac && a.tunnel?.remote === b.tunnel?.remote;
}
