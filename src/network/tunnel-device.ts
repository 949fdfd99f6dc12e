import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { addLink, deleteLink, findLink, getLink, type Link } from '../kernel/rtnetlink/links.ts';
import { addressAt, type IPFamily } from '../lib/address.ts';
import { keepAddresses, keepState } from './kept-device.ts';
import { tunnelMac } from './overlay-routes.ts';
import type { PodGateway } from './pod-bridge.ts';
import { writeDiffering } from './uplink.ts';

/** The VXLAN device. */
export const TUNNEL = 'fl.vxlan';

/** RFC 7348. */
export const VXLAN_PORT = 4789;

/** Bytes that VXLAN adds to a packet: outer IP, UDP, VXLAN and inner Ethernet headers. */
export const TUNNEL_OVERHEAD: Readonly<Record<IPFamily, number>> = { ipv4: 50, ipv6: 70 };

export interface TunnelDevice {
  readonly socket: NetlinkSocket;
  readonly netns: NetnsRef | undefined;
  readonly node: string;
  readonly uplink: Link;
  /** The source of the outer packets. */
  readonly local: string;
  readonly mtu: number;
  readonly gateways: readonly PodGateway[];
  /** VXLAN network identifier and UDP port; default 4242 and 4789. */
  readonly vxlan: { readonly id?: number; readonly port?: number } | undefined;
}

/**
 * Creates or adopts the VXLAN device; returns its index, and a description of the differences. A device that differs in
 * immutable attributes is recreated.
 */
export function keepTunnel(device: TunnelDevice): { index: number; differences: string[] } {
  const { socket, netns, node, uplink, local, mtu, gateways, vxlan } = device;
  const found = findLink(socket, TUNNEL);
  const id = vxlan?.id ?? 4242;
  const port = vxlan?.port ?? VXLAN_PORT;
  const mac = tunnelMac(node);
  const fits =
    found?.vxlan?.id === id &&
    found.vxlan.port === port &&
    found.vxlan.local === local &&
    found.vxlan.device === uplink.index &&
    !found.vxlan.learning;
  if (found && !fits) deleteLink(socket, found.index);
  if (!fits) {
    addLink(socket, {
      kind: 'vxlan',
      name: TUNNEL,
      id,
      port,
      local,
      device: uplink.index,
      learning: false,
      mac,
      mtu,
      // The inner packets have their own checksums.
      outerChecksum: false,
    });
  }
  const tunnel = getLink(socket, TUNNEL);
  const settings = {
    [`net/ipv4/conf/${TUNNEL}/rp_filter`]: 2,
    [`net/ipv6/conf/${TUNNEL}/accept_ra`]: 0,
    [`net/ipv6/conf/${TUNNEL}/accept_dad`]: 0,
  };
  // The address that other nodes use as their next hop. No packet needs it, but the kernel's reverse path filter, even in
  // loose mode, drops all packets from a device without an IPv4 address.
  const addresses = gateways
    .filter(({ cidr }) => cidr.family === 'ipv4')
    .map(({ cidr }) => ({ address: addressAt(cidr, 0), prefix: 32 }));
  return {
    index: tunnel.index,
    differences: [
      ...(fits ? [] : [`${TUNNEL} was missing or different`]),
      ...writeDiffering(settings, netns),
      ...keepState(socket, tunnel, { mtu, mac }),
      ...keepAddresses(socket, tunnel, addresses),
    ],
  };
}

/** Removes the VXLAN device, if there is one. */
export const removeTunnel = (socket: NetlinkSocket): boolean => deleteLink(socket, TUNNEL);
