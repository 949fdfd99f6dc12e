import { createHash } from 'node:crypto';
import { closeSync } from 'node:fs';
import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import { createNetns, listNetns, netnsExists, openNetns, removeNetns } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { addLink, deleteLink, getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { addRoute, replaceRoute } from '../kernel/rtnetlink/routes.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import { cidrContains, parseCidr } from '../lib/address.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { localMac } from './overlay-routes.ts';

/** A host on the wire. */
export interface WireHost {
  readonly name: string;
  /** One per family of the wire. */
  readonly addresses: readonly string[];
}

/** A local cluster's wire: its networks, one per family, and its members. */
export interface Topology {
  readonly cluster: string;
  /** "172.30.0.0/24", "fd00:172:30::/64" */
  readonly wireCidrs: readonly string[];
  /** Addresses of the wire's namespace, in which the control plane runs. */
  readonly controlPlaneAddresses: readonly string[];
  readonly outsideAddresses: readonly string[];
  readonly nodes: readonly WireHost[];
}

/** The bridge in the wire's namespace. */
export const WIRE_BRIDGE = 'wire0';
/** The device of every host on the wire. */
export const UPLINK = 'eth0';

export const wireNetns = (cluster: string) => `fl-${cluster}-wire`;
export const outsideNetns = (cluster: string) => `fl-${cluster}-outside`;
export const nodeNetns = (cluster: string, node: string) => `fl-${cluster}-${node}`;

/**
 * Creates the namespaces of a local cluster and the wire between them, without a connection to the
 * machine's network. After an error everything created is removed. Throws EEXIST if a part already exists.
 */
export function createTopology(topology: Topology): void {
  const { cluster } = topology;
  for (const host of topology.nodes) checkNodeName(host.name);
  const left = listTopology(cluster);
  if (left.length > 0) {
    throw new FairleadError(
      `network namespaces of the cluster ${cluster} already exist: ${left.join(', ')}`,
      {
        op: 'create topology',
        code: 'EEXIST',
        object: cluster,
        hint: `fairlead down --name ${cluster}`,
      },
    );
  }
  try {
    // The wire is created first and removed last: its existence shows which cluster the others belong to
    // (see listTopology).
    createNetns(wireNetns(cluster));
    prepareNetns(wireNetns(cluster));
    using wire = openRouteSocket(wireNetns(cluster));
    // With snooping, neighbour discovery would be blocked until reports were seen.
    addLink(wire, { kind: 'bridge', name: WIRE_BRIDGE, stp: false, multicastSnooping: false, up: true });
    const bridge = getLink(wire, WIRE_BRIDGE).index;
    for (const address of topology.controlPlaneAddresses) {
      addAddress(wire, { device: bridge, address, prefix: prefixOf(address, topology.wireCidrs) });
    }
    const hosts = [{ name: 'outside', addresses: topology.outsideAddresses }, ...topology.nodes];
    for (const host of hosts) plugHost(wire, cluster, host, topology.wireCidrs);
  } catch (error) {
    removeTopology(cluster);
    throw error;
  }
}

/** Adds a node to an existing wire. */
export function addTopologyNode(cluster: string, node: WireHost, wireCidrs: readonly string[]): void {
  checkNodeName(node.name);
  using wire = openRouteSocket(wireNetns(cluster));
  try {
    plugHost(wire, cluster, node, wireCidrs);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) removeTopologyNode(cluster, node.name);
    throw error;
  }
}

/** Removes a node and its namespace from the wire. Returns true if it existed. */
export function removeTopologyNode(cluster: string, node: string): boolean {
  const wireName = wireNetns(cluster);
  if (netnsExists(wireName)) {
    // Immediately, not only after the last process inside has exited.
    using wire = openRouteSocket(wireName);
    deleteLink(wire, wirePort(node));
  }
  return removeNetns(nodeNetns(cluster, node));
}

/**
 * Removes all existing namespaces of a cluster, and returns their names. Devices are removed with them as soon as no
 * process is left inside: stop those first.
 */
export function removeTopology(cluster: string): string[] {
  const names = listTopology(cluster);
  const wire = wireNetns(cluster);
  for (const name of names) if (name !== wire) removeNetns(name);
  if (names.includes(wire)) removeNetns(wire);
  return names;
}

/** Returns the names of a cluster's existing namespaces, without those of clusters whose name has this one as a prefix. */
export function listTopology(cluster: string): string[] {
  const prefix = `fl-${cluster}-`;
  const names = listNetns().filter((name) => name.startsWith(prefix));
  const others = names
    .filter((name) => name.endsWith('-wire') && name !== wireNetns(cluster))
    .map((name) => name.slice(0, -'wire'.length));
  return names.filter((name) => !others.some((other) => name.startsWith(other)));
}

/** Adds a route from `outside` to a network through a node: pods or Services, to which it has no route by default. */
export function routeOutside(cluster: string, destination: string, via: string): void {
  using socket = openRouteSocket(outsideNetns(cluster));
  replaceRoute(socket, { destination, via });
}

/**
 * Connects the machine itself to the wire, so that its programs reach node and load-balancer addresses: a device with
 * addresses of the wire's networks and only their routes. `machine` is the namespace of the device.
 */
export function plugMachine(
  cluster: string,
  addresses: readonly string[],
  wireCidrs: readonly string[],
  machine: string | { readonly path: string } = { path: '/proc/thread-self/ns/net' },
): void {
  using wire = openRouteSocket(wireNetns(cluster));
  const name = machineDevice(cluster);
  const target = openNetns(machine);
  try {
    addLink(wire, {
      kind: 'veth',
      name: 'machine',
      master: getLink(wire, WIRE_BRIDGE).index,
      up: true,
      peer: { name, netns: { fd: target } },
    });
  } finally {
    closeSync(target);
  }
  using socket = openRouteSocket(machine);
  const device = getLink(socket, name).index;
  writeSysctls({ [`net/ipv6/conf/${name}/accept_dad`]: 0, [`net/ipv6/conf/${name}/accept_ra`]: 0 }, machine);
  setLink(socket, device, { up: true });
  for (const address of addresses)
    addAddress(socket, { device, address, prefix: prefixOf(address, wireCidrs) });
}

/**
 * Adds a route from the connected machine to a network through a node: Services, whose addresses no host on the wire has.
 * The route is removed with the device. Throws EEXIST if the machine already has a route to this network.
 */
export function routeMachine(
  cluster: string,
  destination: string,
  via: string,
  machine: string | { readonly path: string } = { path: '/proc/thread-self/ns/net' },
): void {
  using socket = openRouteSocket(machine);
  addRoute(socket, { destination, via, device: getLink(socket, machineDevice(cluster)).index });
}

/** Disconnects the machine from the wire. Returns true if it was connected. */
export function unplugMachine(
  cluster: string,
  machine: string | { readonly path: string } = { path: '/proc/thread-self/ns/net' },
): boolean {
  using socket = openRouteSocket(machine);
  return deleteLink(socket, machineDevice(cluster));
}

/** Returns the name of the device that `plugMachine` creates in the machine's namespace, up to 15 bytes. */
export const machineDevice = (cluster: string) => `fl-${digest(cluster, 10)}`;

function plugHost(wire: NetlinkSocket, cluster: string, host: WireHost, wireCidrs: readonly string[]): void {
  const netns = nodeNetns(cluster, host.name);
  createNetns(netns);
  prepareNetns(netns);
  const target = openNetns(netns);
  try {
    addLink(wire, {
      kind: 'veth',
      name: wirePort(host.name),
      master: getLink(wire, WIRE_BRIDGE).index,
      up: true,
      // The next owner of this address has the same MAC, so that no neighbour holds a stale one.
      peer: {
        name: UPLINK,
        mac: localMac(`wire ${cluster} ${host.addresses.join()}`),
        netns: { fd: target },
      },
    });
  } finally {
    closeSync(target);
  }
  using socket = openRouteSocket(netns);
  const device = getLink(socket, UPLINK).index;
  setLink(socket, device, { up: true });
  for (const address of host.addresses)
    addAddress(socket, { device, address, prefix: prefixOf(address, wireCidrs) });
}

/**
 * Sets the defaults for devices created later, and sets the loopback device up. No router advertisements
 * are sent here, and no two devices have the same address; without duplicate address detection, link-local
 * addresses are usable at once.
 */
function prepareNetns(netns: string): void {
  writeSysctls(
    {
      'net.ipv6.conf.all.accept_ra': 0,
      'net.ipv6.conf.default.accept_ra': 0,
      'net.ipv6.conf.all.accept_dad': 0,
      'net.ipv6.conf.default.accept_dad': 0,
      // A device keeps its addresses when it is set down and up.
      'net.ipv6.conf.all.keep_addr_on_down': 1,
      // By default br_netfilter, if loaded, passes every bridged frame to the IP rules. The pod network does not need it
      // (see pod-network.ts), nor does a wire.
      'net.bridge.bridge-nf-call-iptables': 0,
      'net.bridge.bridge-nf-call-ip6tables': 0,
      'net.bridge.bridge-nf-call-arptables': 0,
    },
    netns,
  );
  using socket = openRouteSocket(netns);
  setLink(socket, getLink(socket, 'lo').index, { up: true });
}

/** Returns the bridge's port of a host: the host's name, if it is short enough for a device. */
function wirePort(host: string): string {
  return host.length <= 15 && host !== WIRE_BRIDGE && host !== 'lo' && host !== 'machine'
    ? host
    : `h${digest(host, 12)}`;
}

const digest = (text: string, length: number) =>
  createHash('sha256').update(text).digest('hex').slice(0, length);

function prefixOf(address: string, cidrs: readonly string[]): number {
  for (const text of cidrs) {
    const cidr = parseCidr(text);
    if (cidr && cidrContains(cidr, address)) return cidr.prefix;
  }
  throw new FairleadError(`${address} is not in the wire's networks: ${cidrs.join(', ')}`, {
    op: 'create topology',
    code: 'EINVAL',
  });
}

/** Namespaces are identified by name only, so a node cannot have the name of another part of a cluster. */
function checkNodeName(name: string): void {
  if (/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(name) && !/(^|-)wire$/.test(name) && name !== 'outside') return;
  throw new FairleadError(`${JSON.stringify(name)} is not a valid node name`, {
    op: 'create topology',
    code: 'EINVAL',
    hint: 'use lower-case letters, digits, "-" and "."; not "outside", and not ending in "wire"',
  });
}
