import { addressBytes, formatAddress } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import {
  type Attributes,
  MessageWriter,
  readAttributes,
  readBe16,
  readText,
  readU32,
} from '../netlink/attributes.ts';
import {
  NETLINK_ROUTE,
  type NetlinkMessage,
  NetlinkSocket,
  NLM_F_CREATE,
  NLM_F_EXCL,
} from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import {
  AF_BRIDGE,
  AF_INET6,
  AF_UNSPEC,
  IFF_LOWER_UP,
  IFF_UP,
  IFLA_ADDRESS,
  IFLA_AF_SPEC,
  IFLA_BR_MCAST_SNOOPING,
  IFLA_BR_STP_STATE,
  IFLA_BR_VLAN_FILTERING,
  IFLA_BRPORT_BCAST_FLOOD,
  IFLA_BRPORT_ISOLATED,
  IFLA_BRPORT_LEARNING,
  IFLA_BRPORT_MCAST_FLOOD,
  IFLA_BRPORT_MODE,
  IFLA_BRPORT_NEIGH_SUPPRESS,
  IFLA_BRPORT_UNICAST_FLOOD,
  IFLA_GROUP,
  IFLA_IFALIAS,
  IFLA_IFNAME,
  IFLA_INET6_ADDR_GEN_MODE,
  IFLA_INFO_DATA,
  IFLA_INFO_KIND,
  IFLA_LINK,
  IFLA_LINKINFO,
  IFLA_MASTER,
  IFLA_MTU,
  IFLA_NET_NS_FD,
  IFLA_NET_NS_PID,
  IFLA_OPERSTATE,
  IFLA_PROTINFO,
  IFLA_VXLAN_ID,
  IFLA_VXLAN_LEARNING,
  IFLA_VXLAN_LINK,
  IFLA_VXLAN_LOCAL,
  IFLA_VXLAN_LOCAL6,
  IFLA_VXLAN_PORT,
  IFLA_VXLAN_UDP_CSUM,
  IFLA_VXLAN_UDP_ZERO_CSUM6_RX,
  IFLA_VXLAN_UDP_ZERO_CSUM6_TX,
  IN6_ADDR_GEN_MODE_NONE,
  RTM_DELLINK,
  RTM_GETLINK,
  RTM_NEWLINK,
  RTM_SETLINK,
  VETH_INFO_PEER,
} from './constants.ts';

/**
 * Opens a netlink socket for links, addresses, routes, rules and neighbours of a namespace (default: this
 * thread's).
 */
export function openRouteSocket(netns?: NetnsRef): NetlinkSocket {
  return new NetlinkSocket({ protocol: NETLINK_ROUTE, netns });
}

/** A network device, as the kernel describes it. */
export interface Link {
  readonly index: number;
  readonly name: string;
  /** "veth", "bridge", "vxlan", …; null for devices without a kind, such as loopback and hardware. */
  readonly kind: string | null;
  readonly mac: string | null;
  readonly mtu: number;
  /** Whether it was set up (IFF_UP). */
  readonly up: boolean;
  /** Whether it has a carrier (IFF_LOWER_UP). */
  readonly carrier: boolean;
  /** Whether the kernel has activated it (IF_OPER_UP, RFC 2863), which it does some time after it was set up. */
  readonly isOperational: boolean;
  /** Index of the bridge that this device is a port of. */
  readonly master: number | null;
  /** Index of the underlying device, or of a veth's peer, in the peer's namespace. */
  readonly link: number | null;
  /** Attributes of a VXLAN device; null for other kinds. */
  readonly vxlan: VxlanState | null;
  /** A text of the device, which the kernel does not interpret; "": none. */
  readonly alias: string;
}

/** Attributes of a VXLAN device (RFC 7348). */
export interface VxlanState {
  readonly id: number;
  readonly local: string | null;
  readonly port: number;
  readonly learning: boolean;
  readonly device: number | null;
}

/** A namespace to put a device into: of a process, or of an open descriptor. */
export type LinkNetns = { readonly pid: number } | { readonly fd: number };

/** Settings that every new device can have. */
export interface LinkSettings {
  readonly name: string;
  readonly mtu?: number;
  /** "02:00:00:00:00:01"; chosen by the kernel when left out. */
  readonly mac?: string;
  readonly up?: boolean;
  /** The namespace of the device; default: the socket's. */
  readonly netns?: LinkNetns;
}

export interface VethSettings extends LinkSettings {
  readonly kind: 'veth';
  readonly master?: number;
  /** The other end. The kernel refuses to create it up (ENOTCONN), so set it up afterwards. */
  readonly peer: Omit<LinkSettings, 'up'>;
}

export interface BridgeSettings extends LinkSettings {
  readonly kind: 'bridge';
  readonly stp?: boolean;
  readonly vlanFiltering?: boolean;
  readonly multicastSnooping?: boolean;
}

export interface VxlanSettings extends LinkSettings {
  readonly kind: 'vxlan';
  readonly master?: number;
  /** VXLAN network identifier, 24 bits. */
  readonly id: number;
  /** Source address of the outer packets; its family is the tunnel's. */
  readonly local: string;
  /** UDP destination port; 4789 by RFC 7348. */
  readonly port: number;
  /** Whether the device learns remote addresses from what it receives. */
  readonly learning: boolean;
  /** Index of the device that carries the outer packets; if omitted, the routes decide. */
  readonly device?: number;
  /** UDP checksum of the outer packet over IPv4. */
  readonly outerChecksum?: boolean;
}

/** A device that carries addresses and no packets. */
export interface DummySettings extends LinkSettings {
  readonly kind: 'dummy';
}

export type NewLink = VethSettings | BridgeSettings | VxlanSettings | DummySettings;

/** Creates a device, and a veth's peer, in their namespaces, in one request. */
export function addLink(socket: NetlinkSocket, link: NewLink): void {
  const writer = linkHeader(AF_UNSPEC, 0, link.up);
  writeSettings(writer, link);
  if ('master' in link && link.master !== undefined) writer.attributeU32(IFLA_MASTER, link.master);
  writer.nested(IFLA_LINKINFO, () => {
    writer.attributeText(IFLA_INFO_KIND, link.kind);
    writer.nested(IFLA_INFO_DATA, () => writeKind(writer, link));
  });
  socket.request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, writer.bytes(), `add ${link.kind} ${link.name}`);
}

/** Changes of a device; omitted fields stay unchanged. */
export interface LinkChanges {
  readonly name?: string;
  readonly up?: boolean;
  readonly mtu?: number;
  readonly mac?: string;
  /** Index of a bridge; 0 removes the device from its bridge. */
  readonly master?: number;
  readonly netns?: LinkNetns;
  /** A number that addresses several devices together; the kernel puts new devices into group 0. */
  readonly group?: number;
  /** False: the kernel generates no link-local address for the device. */
  readonly linkLocalAddress?: boolean;
  /** At most 255 bytes (IFALIASZ); "" removes it. */
  readonly alias?: string;
}

export function setLink(socket: NetlinkSocket, index: number, changes: LinkChanges): void {
  const writer = linkHeader(AF_UNSPEC, index, changes.up);
  writeSettings(writer, changes);
  if (changes.master !== undefined) writer.attributeU32(IFLA_MASTER, changes.master);
  if (changes.group !== undefined) writer.attributeU32(IFLA_GROUP, changes.group);
  if (changes.alias !== undefined) writer.attribute(IFLA_IFALIAS, Buffer.from(changes.alias));
  if (changes.linkLocalAddress !== undefined) {
    const mode = changes.linkLocalAddress ? 0 : IN6_ADDR_GEN_MODE_NONE;
    writer.nested(IFLA_AF_SPEC, () => {
      writer.nested(AF_INET6, () => writer.attributeU8(IFLA_INET6_ADDR_GEN_MODE, mode));
    });
  }
  socket.request(RTM_NEWLINK, 0, writer.bytes(), `change link ${changes.name ?? index}`);
}

/** How a bridge treats one of its ports. */
export interface BridgePortChanges {
  /** Whether a frame may leave by the port it arrived on: a pod that reaches itself through a Service. */
  readonly hairpin?: boolean;
  readonly learning?: boolean;
  /** Whether the bridge floods frames for unknown addresses to this port. */
  readonly flood?: boolean;
  /** The same for frames to groups that no port has joined, and for broadcasts. */
  readonly floodGroups?: boolean;
  readonly floodBroadcasts?: boolean;
  readonly isolated?: boolean;
  /** Whether the bridge answers ARP and ND from its neighbour table instead of flooding. */
  readonly neighbourSuppression?: boolean;
}

/** The settings of a bridge's port, as the kernel has them. */
export type BridgePortSettings = Required<BridgePortChanges>;

const PORT_FLAGS: Readonly<Record<keyof BridgePortChanges, number>> = {
  hairpin: IFLA_BRPORT_MODE,
  learning: IFLA_BRPORT_LEARNING,
  flood: IFLA_BRPORT_UNICAST_FLOOD,
  floodGroups: IFLA_BRPORT_MCAST_FLOOD,
  floodBroadcasts: IFLA_BRPORT_BCAST_FLOOD,
  isolated: IFLA_BRPORT_ISOLATED,
  neighbourSuppression: IFLA_BRPORT_NEIGH_SUPPRESS,
};

/** Returns the settings of all ports of bridges, by the device's index. */
export function listBridgePorts(socket: NetlinkSocket): Map<number, BridgePortSettings> {
  const ports = new Map<number, BridgePortSettings>();
  for (const { payload } of socket.dump(RTM_GETLINK, linkHeader(AF_BRIDGE, 0, undefined).bytes(), 'ports')) {
    const info = nested(readAttributes(payload.subarray(16)), IFLA_PROTINFO);
    if (!info) continue;
    const has = (name: keyof BridgePortChanges) => info.get(PORT_FLAGS[name])?.[0] === 1;
    ports.set(readU32(payload, 4), {
      hairpin: has('hairpin'),
      learning: has('learning'),
      flood: has('flood'),
      floodGroups: has('floodGroups'),
      floodBroadcasts: has('floodBroadcasts'),
      isolated: has('isolated'),
      neighbourSuppression: has('neighbourSuppression'),
    });
  }
  return ports;
}

/** Changes the settings of a bridge's port. */
export function setBridgePort(socket: NetlinkSocket, index: number, changes: BridgePortChanges): void {
  const writer = linkHeader(AF_BRIDGE, index, undefined);
  writer.nested(IFLA_PROTINFO, () => {
    for (const [name, type] of Object.entries(PORT_FLAGS)) {
      const value = changes[name as keyof BridgePortChanges];
      if (value !== undefined) writer.attributeU8(type, value ? 1 : 0);
    }
  });
  socket.request(RTM_SETLINK, 0, writer.bytes(), `change bridge port ${index}`);
}

/** Removes a device, by name or index, together with a veth's peer. Returns false if it does not exist. */
export function deleteLink(socket: NetlinkSocket, link: string | number): boolean {
  const writer = linkHeader(AF_UNSPEC, typeof link === 'number' ? link : 0, undefined);
  if (typeof link === 'string') writer.attributeText(IFLA_IFNAME, checkedName(link));
  try {
    socket.request(RTM_DELLINK, 0, writer.bytes(), `delete link ${link}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENODEV')) return false;
    throw error;
  }
}

/**
 * Removes all devices of a group (see `LinkChanges.group`) on a thread: the kernel waits for RCU readers
 * for tens of milliseconds, once for all devices. The socket accepts no requests meanwhile. An empty group
 * is not an error.
 */
export async function deleteLinkGroup(socket: NetlinkSocket, group: number): Promise<void> {
  const writer = linkHeader(AF_UNSPEC, 0, undefined).attributeU32(IFLA_GROUP, group);
  try {
    await socket.requestAsync(RTM_DELLINK, 0, writer.bytes(), `delete link group ${group}`);
  } catch (error) {
    if (!hasCode(error, 'ENODEV')) throw error;
  }
}

/** Returns the device of this name or index, or null. */
export function findLink(socket: NetlinkSocket, link: string | number): Link | null {
  const writer = linkHeader(AF_UNSPEC, typeof link === 'number' ? link : 0, undefined);
  if (typeof link === 'string') writer.attributeText(IFLA_IFNAME, checkedName(link));
  try {
    const [message] = socket.request(RTM_GETLINK, 0, writer.bytes(), `link ${link}`);
    return message ? readLink(message) : null;
  } catch (error) {
    if (hasCode(error, 'ENODEV')) return null;
    throw error;
  }
}

/** Works like `findLink`, but throws FairleadError (ENODEV) if the device does not exist. */
export function getLink(socket: NetlinkSocket, link: string | number): Link {
  const found = findLink(socket, link);
  if (found) return found;
  throw new FairleadError(`no such network device: ${link}`, {
    op: 'find link',
    code: 'ENODEV',
    object: String(link),
  });
}

export function listLinks(socket: NetlinkSocket): Link[] {
  return socket.dump(RTM_GETLINK, linkHeader(AF_UNSPEC, 0, undefined).bytes(), 'links').map(readLink);
}

/** Reads an RTM_NEWLINK or RTM_DELLINK message (struct ifinfomsg and attributes). */
export function readLink(message: NetlinkMessage): Link {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(16));
  const flags = readU32(payload, 8);
  const info = nested(attributes, IFLA_LINKINFO);
  const kind = info && text(info, IFLA_INFO_KIND);
  const data = info && nested(info, IFLA_INFO_DATA);
  const mac = attributes.get(IFLA_ADDRESS);
  return {
    index: readU32(payload, 4),
    name: text(attributes, IFLA_IFNAME) ?? '',
    kind: kind ?? null,
    mac: mac && mac.length === 6 ? formatMac(mac) : null,
    mtu: number(attributes, IFLA_MTU) ?? 0,
    up: (flags & IFF_UP) !== 0,
    carrier: (flags & IFF_LOWER_UP) !== 0 && attributes.get(IFLA_OPERSTATE)?.[0] !== OPERSTATE_DOWN,
    isOperational: attributes.get(IFLA_OPERSTATE)?.[0] === OPERSTATE_UP,
    master: number(attributes, IFLA_MASTER) ?? null,
    link: number(attributes, IFLA_LINK) ?? null,
    vxlan: kind === 'vxlan' && data ? readVxlan(data) : null,
    alias: text(attributes, IFLA_IFALIAS) ?? '',
  };
}

// IF_OPER_DOWN and IF_OPER_UP of linux/if.h
const OPERSTATE_DOWN = 2;
const OPERSTATE_UP = 6;

/** Returns "02:00:00:00:00:01" for six bytes. */
export function formatMac(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(':');
}

/** Returns the six bytes of "02:00:00:00:00:01". Throws on anything else. */
export function macBytes(mac: string): Uint8Array {
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(mac)) {
    throw new FairleadError(`${JSON.stringify(mac)} is not a MAC address`, {
      op: 'read MAC',
      code: 'EINVAL',
    });
  }
  return Uint8Array.from(mac.split(':'), (part) => Number.parseInt(part, 16));
}

function linkHeader(family: number, index: number, up: boolean | undefined): MessageWriter {
  return new MessageWriter(256)
    .u8(family)
    .u8(0)
    .u16(0)
    .u32(index)
    .u32(up ? IFF_UP : 0)
    .u32(up === undefined ? 0 : IFF_UP);
}

function writeSettings(writer: MessageWriter, settings: Partial<LinkSettings>): void {
  if (settings.name !== undefined) writer.attributeText(IFLA_IFNAME, checkedName(settings.name));
  if (settings.mtu !== undefined) writer.attributeU32(IFLA_MTU, settings.mtu);
  if (settings.mac !== undefined) writer.attribute(IFLA_ADDRESS, macBytes(settings.mac));
  const { netns } = settings;
  if (netns !== undefined) {
    if ('pid' in netns) writer.attributeU32(IFLA_NET_NS_PID, netns.pid);
    else writer.attributeU32(IFLA_NET_NS_FD, netns.fd);
  }
}

function writeKind(writer: MessageWriter, link: NewLink): void {
  const flag = (type: number, value: boolean | undefined) => {
    if (value !== undefined) writer.attributeU8(type, value ? 1 : 0);
  };
  switch (link.kind) {
    case 'dummy':
      return;
    case 'veth': {
      writer.nested(VETH_INFO_PEER, () => {
        writer.raw(linkHeader(AF_UNSPEC, 0, undefined).bytes());
        writeSettings(writer, link.peer);
      });
      return;
    }
    case 'bridge':
      if (link.stp !== undefined) writer.attributeU32(IFLA_BR_STP_STATE, link.stp ? 1 : 0);
      flag(IFLA_BR_VLAN_FILTERING, link.vlanFiltering);
      flag(IFLA_BR_MCAST_SNOOPING, link.multicastSnooping);
      return;
    case 'vxlan': {
      const local = addressBytes(link.local);
      if (!local) throw new FairleadError(`vxlan ${link.name}: ${link.local} is not an address`, BAD_LINK);
      if (link.id < 0 || link.id > 0xffffff) {
        throw new FairleadError(`vxlan ${link.name}: the id ${link.id} is outside 0-16777215`, BAD_LINK);
      }
      writer.attributeU32(IFLA_VXLAN_ID, link.id);
      writer.attribute(local.length === 4 ? IFLA_VXLAN_LOCAL : IFLA_VXLAN_LOCAL6, local);
      if (link.device !== undefined) writer.attributeU32(IFLA_VXLAN_LINK, link.device);
      writer.attributeBe16(IFLA_VXLAN_PORT, link.port);
      flag(IFLA_VXLAN_LEARNING, link.learning);
      if (local.length === 4) flag(IFLA_VXLAN_UDP_CSUM, link.outerChecksum);
      else if (link.outerChecksum !== undefined) {
        flag(IFLA_VXLAN_UDP_ZERO_CSUM6_TX, !link.outerChecksum);
        flag(IFLA_VXLAN_UDP_ZERO_CSUM6_RX, true);
      }
    }
  }
}

const BAD_LINK = { op: 'add link', code: 'EINVAL' } as const;

function readVxlan(data: Attributes): VxlanState {
  const local = data.get(IFLA_VXLAN_LOCAL) ?? data.get(IFLA_VXLAN_LOCAL6);
  const port = data.get(IFLA_VXLAN_PORT);
  return {
    id: number(data, IFLA_VXLAN_ID) ?? 0,
    local: local ? formatAddress(local) : null,
    port: port ? readBe16(port) : 0,
    learning: data.get(IFLA_VXLAN_LEARNING)?.[0] === 1,
    device: number(data, IFLA_VXLAN_LINK) ?? null,
  };
}

/** IFNAMSIZ includes the terminating zero. */
function checkedName(name: string): string {
  if (name.length >= 1 && Buffer.byteLength(name) <= 15 && !/[\s/]/.test(name)) return name;
  throw new FairleadError(
    `${JSON.stringify(name)} is not a valid device name: use 1 to 15 bytes without space or slash`,
    {
      op: 'name link',
      code: 'EINVAL',
    },
  );
}

function nested(attributes: Attributes, type: number): Attributes | undefined {
  const value = attributes.get(type);
  return value && readAttributes(value);
}

function text(attributes: Attributes, type: number): string | undefined {
  const value = attributes.get(type);
  return value && readText(value);
}

function number(attributes: Attributes, type: number): number | undefined {
  const value = attributes.get(type);
  return value && readU32(value);
}
