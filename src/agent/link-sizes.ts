import type { NetnsRef } from '../kernel/netns.ts';
import { listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { isPodPort } from '../network/pod-link.ts';
import { UPLINK } from '../network/topology.ts';
import { TUNNEL } from '../network/tunnel-device.ts';
import { uplinkOf } from './observed-devices.ts';

/** A device that packets between pods pass. */
export interface LinkSize {
  /** `wire`: a port of a local cluster's network between nodes; `pod`: the end of a pod's device on its node. */
  readonly role: 'uplink' | 'tunnel' | 'pod' | 'wire';
  readonly device: string;
  readonly mtu: number;
}

/** Devices of pods that are reported: those with the largest MTU. */
const MAX_POD_LINKS = 20;

/** Reads the devices of a node that packets between pods pass. */
export function readLinkSizes(netns: NetnsRef): LinkSize[] {
  const uplink = uplinkOf(netns) ?? UPLINK;
  using socket = openRouteSocket(netns);
  const links = listLinks(socket);
  const sizeOf = (role: LinkSize['role'], of: readonly (typeof links)[number][]): LinkSize[] =>
    of.map(({ name, mtu }) => ({ role, device: name, mtu }));
  const pods = links.filter(({ name }) => isPodPort(name)).toSorted((a, b) => b.mtu - a.mtu);
  return [
    ...sizeOf(
      'uplink',
      links.filter(({ name }) => name === uplink),
    ),
    ...sizeOf(
      'tunnel',
      links.filter(({ name }) => name === TUNNEL),
    ),
    ...sizeOf('pod', pods.slice(0, MAX_POD_LINKS)),
  ];
}

/** Reads the port of a node on the network between the nodes of a local cluster. */
export function readWirePort(wire: NetnsRef, node: string): LinkSize[] {
  using socket = openRouteSocket(wire);
  return listLinks(socket)
    .filter(({ name, master }) => name === node && master !== null)
    .map(({ name, mtu }) => ({ role: 'wire', device: name, mtu }));
}
