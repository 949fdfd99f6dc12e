import { createHash } from 'node:crypto';
import { closeSync } from 'node:fs';
import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import { type NetnsRef, openNetns } from '../kernel/netns.ts';
import { addAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import {
  addLink,
  type BridgePortSettings,
  findLink,
  getLink,
  type Link,
  openRouteSocket,
  setBridgePort,
  setLink,
} from '../kernel/rtnetlink/links.ts';
import { replaceForwardingEntry, replaceNeighbour } from '../kernel/rtnetlink/neighbours.ts';
import { listRoutes, type Route, replaceRoute } from '../kernel/rtnetlink/routes.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import { cidrContains, familyOf } from '../lib/address.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import type { NodeNetwork } from './node-network.ts';
import { localMac } from './overlay-routes.ts';
import { POD_BRIDGE, type PodGateway } from './pod-bridge.ts';

// The veth pair of one pod: its end in the pod, and its port on the node's bridge.

/** The parts of a pod that its devices need. */
export interface LinkedPod {
  readonly uid: string;
  /** The name of its device; default eth0. */
  readonly device?: string;
}

/** The device inside a pod. */
const POD_DEVICE = 'eth0';
const PORT_PREFIX = 'flp';

/** Returns true if this is the name of a pod's device on the node. */
export const isPodPort = (name: string) => name.startsWith(PORT_PREFIX);

/** Returns the name of a pod's device on the node. */
export function podPort(uid: string): string {
  return `${PORT_PREFIX}${createHash('sha256').update(uid).digest('hex').slice(0, 10)}`;
}

/** Returns true if a pod's device on the node is connected to this namespace. */
export function isPlugged(network: NodeNetwork, uid: string, netns: NetnsRef, name = POD_DEVICE): boolean {
  const port = findLink(network.socket, podPort(uid));
  using inside = openRouteSocket(netns);
  const device = findLink(inside, name);
  return port !== null && device !== null && device.link === port.index && device.mac === podMac(uid);
}

/** Describes the problem of a pod's devices, addresses and routes; null: none. */
export function podLinkProblem(
  network: NodeNetwork,
  uid: string,
  netns: NetnsRef,
  ips: readonly string[],
  device = POD_DEVICE,
): string | null {
  const port = findLink(network.socket, podPort(uid));
  if (!port) return `the node has no device ${podPort(uid)}`;
  if (port.master !== network.bridge) return `${podPort(uid)} is not on the bridge`;
  if (!isPlugged(network, uid, netns, device)) return `there is no ${device} connected to ${podPort(uid)}`;
  using inside = openRouteSocket(netns);
  const link = getLink(inside, device);
  if (!link.up) return `${device} is down`;
  const present = new Set(listAddresses(inside, { device: link.index }).map(({ address }) => address));
  const lost = ips.find((ip) => !present.has(ip));
  if (lost) return `${device} does not have the address ${lost}`;
  for (const { cidr, address } of network.gateways) {
    const routes = listRoutes(inside, { family: cidr.family });
    const isDefault = ({ destination, via }: Route) =>
      /^(0\.0\.0\.0|::)\/0$/.test(destination) && via === address;
    if (!routes.some(isDefault)) return `there is no default route via ${address}`;
  }
  return null;
}

/** Returns the MAC of a pod's device. */
export const podMac = (uid: string) => localMac(`pod ${uid}`);

/** Creates the veth pair, both ends down, unless it exists; returns true if it did not. */
export function createPodLink(network: NodeNetwork, pod: LinkedPod, netns: NetnsRef): boolean {
  const { uid, device = POD_DEVICE } = pod;
  const { socket, bridge } = network;
  const name = podPort(uid);
  if (findLink(socket, name)) return false;
  writeSysctls(POD_SYSCTLS, netns);
  const target = openNetns(netns);
  try {
    addLink(socket, {
      kind: 'veth',
      name,
      mtu: network.mtu,
      master: bridge,
      peer: { name: device, mtu: network.mtu, mac: podMac(uid), netns: { fd: target } },
    });
  } finally {
    closeSync(target);
  }
  // A bridge's port needs no address; link-local addresses of hundreds of ports would fill the tables.
  writeSysctls({ [`net/ipv6/conf/${name}/disable_ipv6`]: 1 }, network.netns);
  return true;
}

/**
 * Settings that let a pod ask no neighbours: its gateways have permanent entries. The kernel keeps an entry for each address
 * that it asks for, in a table of about a thousand for the whole machine. The namespaces of a user do not have these settings
 * (neigh_sysctl_register). The bridge asks only for the node's own packets (unused-addresses.ts).
 */
const noQuestions = (device: string): Readonly<Record<string, number>> =>
  Object.fromEntries(['ipv4', 'ipv6'].map((family) => [`net/${family}/neigh/${device}/mcast_solicit`, 0]));

/** Sets up both ends. */
export function setUpPodLink(
  network: NodeNetwork,
  pod: LinkedPod,
  netns: NetnsRef,
  ips: readonly string[],
): void {
  const { uid, device = POD_DEVICE } = pod;
  setUpPort(network, getLink(network.socket, podPort(uid)), podMac(uid), ips);
  writeSysctls(noQuestions(device), netns);
  using inside = openRouteSocket(netns);
  setUpInside(network, inside, device, ips);
}

/** Longest time that the kernel may take to activate the devices, and the longest pause between looks. */
const ACTIVE_MS = 5000;
const LOOK_MS = 20;

/**
 * Waits until packets pass both ends and the bridge. The kernel activates devices in a work of its own, which waits for all other
 * changes of devices on the machine (net/core/link_watch.c); until then it drops their packets. Throws FairleadError "ETIMEDOUT".
 */
export async function untilPodLinkWorks(
  network: NodeNetwork,
  { uid, device = POD_DEVICE }: LinkedPod,
  netns: NetnsRef,
  clock: Clock,
): Promise<void> {
  using inside = openRouteSocket(netns);
  const inactive = () =>
    [
      getLink(inside, device),
      getLink(network.socket, podPort(uid)),
      getLink(network.socket, POD_BRIDGE),
    ].find(({ isOperational }) => !isOperational);
  let left = ACTIVE_MS;
  for (let ms = 1; ; ms = Math.min(2 * ms, LOOK_MS)) {
    const link = inactive();
    if (!link) return;
    if (left <= 0) {
      throw new FairleadError(
        `the kernel has not activated the device ${link.name} in ${ACTIVE_MS / 1000} s`,
        {
          op: 'attach pod',
          code: 'ETIMEDOUT',
          object: link.name,
        },
      );
    }
    await pause(clock, ms);
    left -= ms;
  }
}

/** Sets up the node's end, which may be detached if another program removed the bridge and it was recreated. */
export function setUpPort(
  { socket, bridge }: NodeNetwork,
  port: Link,
  mac: string,
  ips: readonly string[],
): void {
  if (port.master !== bridge) setLink(socket, port.index, { master: bridge });
  if (!port.up) setLink(socket, port.index, { up: true });
  setBridgePort(socket, port.index, PORT_SETTINGS);
  replaceForwardingEntry(socket, { device: port.index, mac });
  for (const address of ips) replaceNeighbour(socket, { device: bridge, address, mac });
}

/**
 * The location of each pod is known, so learning and flooding are off, also of groups and broadcasts: pods have no neighbour
 * but the gateway. With br_netfilter on, a frame that the rules redirected to a pod is switched directly, and may have to
 * leave by the port by which it entered (hairpin). For such frames the ports are not isolated from each other by the
 * bridge; the source guard lets no frame pass to another pod's MAC.
 */
const PORT_SETTINGS = {
  hairpin: true,
  learning: false,
  flood: false,
  floodGroups: false,
  floodBroadcasts: false,
} as const;

/** Returns true if a port of the bridge has the settings of pods' ports. */
export const hasPortSettings = (port: BridgePortSettings | undefined): boolean =>
  !!port &&
  Object.entries(PORT_SETTINGS).every(([name, value]) => port[name as keyof typeof PORT_SETTINGS] === value);

/** Sets a device down, if it exists. */
export function shutDown(socket: NetlinkSocket, name: string): void {
  const link = findLink(socket, name);
  if (!link?.up) return;
  try {
    setLink(socket, link.index, { up: false });
  } catch (error) {
    // Its peer was removed with a pod's namespace meanwhile.
    if (!hasCode(error, 'ENODEV')) throw error;
  }
}

/**
 * Configures the addresses and routes of the pod's end. The pod's only route is through the gateway, even to its own
 * network, so packets between pods of the same node pass the node's IP layer. There the reply of a Service's endpoint
 * passes the rules that restore the Service's address; switched by the bridge, it would not (unless br_netfilter is
 * loaded and on, which is neither required nor a problem).
 */
function setUpInside(
  network: NodeNetwork,
  inside: NetlinkSocket,
  name: string,
  ips: readonly string[],
): void {
  setLink(inside, getLink(inside, 'lo').index, { up: true });
  const link = getLink(inside, name);
  const device = link.index;
  if (!link.up) setLink(inside, device, { up: true });
  const present = new Set(
    listAddresses(inside, { device }).map((entry) => `${entry.address}/${entry.prefix}`),
  );
  for (const address of ips) {
    const gateway = gatewayFor(network, address);
    const { prefix, family } = gateway.cidr;
    if (!present.has(`${address}/${prefix}`))
      addAddress(inside, { device, address, prefix, prefixRoute: false });
    replaceNeighbour(inside, { device, address: gateway.address, mac: network.bridgeMac });
    const host = family === 'ipv4' ? 32 : 128;
    replaceRoute(inside, { destination: `${gateway.address}/${host}`, device, source: address });
    replaceRoute(inside, {
      destination: family === 'ipv4' ? '0.0.0.0/0' : '::/0',
      via: gateway.address,
      device,
      source: address,
    });
  }
}

/**
 * Before the device is created, since it inherits them. ICMP redirects by the gateway, which sends packets back out of
 * the same interface, must be ignored.
 */
const POD_SYSCTLS = {
  'net.ipv4.conf.all.accept_redirects': 0,
  'net.ipv4.conf.default.accept_redirects': 0,
  'net.ipv6.conf.all.accept_redirects': 0,
  'net.ipv6.conf.default.accept_redirects': 0,
  'net.ipv6.conf.all.accept_ra': 0,
  'net.ipv6.conf.default.accept_ra': 0,
  'net.ipv6.conf.all.accept_dad': 0,
  'net.ipv6.conf.default.accept_dad': 0,
  // The source guard knows the link-local address that is derived from the MAC.
  'net.ipv6.conf.default.addr_gen_mode': 0,
  // There are no routers to ask.
  'net.ipv6.conf.default.router_solicitations': 0,
} as const;

function gatewayFor(network: NodeNetwork, address: string): PodGateway {
  const gateway = network.gateways.find((other) => cidrContains(other.cidr, address));
  if (gateway) return gateway;
  throw new FairleadError(`the node has no ${familyOf(address)} network for the address ${address}`, {
    op: 'attach pod',
    code: 'EADDRNOTAVAIL',
  });
}
