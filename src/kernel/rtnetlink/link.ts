import { addressBytes } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import {
  type Attributes,
  MessageWriter,
  readAttributes,
  readI32,
  readText,
  readU16,
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

// linux/rtnetlink.h, linux/if_link.h, linux/if.h
const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;
const RTM_GETLINK = 18;
const RTM_SETLINK = 19;
const AF_BRIDGE = 7;
const IFF_UP = 1;
const IFLA = {
  ADDRESS: 1,
  IFNAME: 3,
  MTU: 4,
  LINK: 5,
  MASTER: 10,
  PROTINFO: 12,
  LINKINFO: 18,
  NET_NS_FD: 28,
} as const;
const IFLA_INFO_KIND = 1;
const IFLA_INFO_DATA = 2;
const VETH_INFO_PEER = 1;
const IFLA_BR = { AGEING_TIME: 4, STP_STATE: 5, MCAST_SNOOPING: 23 } as const;
const IFLA_BRPORT = { HAIRPIN: 4, LEARNING: 8, UNICAST_FLOOD: 9, NEIGH_SUPPRESS: 32 } as const;
const IFLA_VXLAN = { ID: 1, LINK: 3, LOCAL: 4, LEARNING: 7, PORT: 15, LOCAL6: 17, UDP_CSUM: 18 } as const;

/** A network device as the kernel reports it. */
export interface Link {
  readonly index: number;
  readonly name: string;
  /** "veth", "bridge", "vxlan", …; null for loopback and hardware. */
  readonly kind: string | null;
  readonly up: boolean;
  readonly mtu: number;
  /** "02:00:00:00:00:01"; empty where the device has none. */
  readonly address: string;
  /** Index of the bridge it is a port of; 0: none. */
  readonly master: number;
  /** Index of the device below or of a veth's peer (in the peer's namespace); 0: none. */
  readonly parent: number;
}

/** A socket for links, addresses, routes and neighbours of one namespace (default: this thread's). */
export function openRouteSocket(netns?: NetnsRef): NetlinkSocket {
  return new NetlinkSocket({ protocol: NETLINK_ROUTE, ...(netns === undefined ? {} : { netns }) });
}

/** Makes a veth pair; `peer.netns`, an open descriptor, is where the other end is put. Both ends start down. */
export function createVeth(
  socket: NetlinkSocket,
  veth: {
    readonly name: string;
    readonly address?: string;
    readonly mtu?: number;
    readonly master?: number;
    readonly up?: boolean;
    readonly peer: { readonly name: string; readonly netns?: number; readonly address?: string };
  },
): void {
  createLink(socket, 'veth', veth, (writer) => {
    writer.nested(VETH_INFO_PEER, () => {
      ifinfomsg(writer, 0, 0, 0, 0);
      writer.attributeText(IFLA.IFNAME, veth.peer.name);
      if (veth.mtu !== undefined) writer.attributeU32(IFLA.MTU, veth.mtu);
      if (veth.peer.address !== undefined) writer.attribute(IFLA.ADDRESS, macBytes(veth.peer.address));
      if (veth.peer.netns !== undefined) writer.attributeU32(IFLA.NET_NS_FD, veth.peer.netns);
    });
  });
}

/** Makes a bridge without spanning tree and without multicast snooping (which would eat ND for lack of a querier). */
export function createBridge(
  socket: NetlinkSocket,
  bridge: { readonly name: string; readonly address?: string; readonly mtu?: number; readonly up?: boolean },
): void {
  createLink(socket, 'bridge', bridge, (writer) => {
    writer.attributeU32(IFLA_BR.STP_STATE, 0);
    writer.attributeU8(IFLA_BR.MCAST_SNOOPING, 0);
  });
}

/** Makes a VXLAN device (RFC 7348) that learns nothing: forwarding entries are written by hand. */
export function createVxlan(
  socket: NetlinkSocket,
  vxlan: {
    readonly name: string;
    readonly id: number;
    /** Address that the outer packets come from. */
    readonly local: string;
    /** Index of the device that the outer packets leave by. */
    readonly parent: number;
    readonly port: number;
    readonly mtu?: number;
    readonly address?: string;
    readonly up?: boolean;
  },
): void {
  const local = addressBytes(vxlan.local);
  if (!local) throw new FairleadError(`${vxlan.local} is no address`, { op: 'create vxlan', code: 'EINVAL' });
  createLink(socket, 'vxlan', vxlan, (writer) => {
    writer.attributeU32(IFLA_VXLAN.ID, vxlan.id);
    writer.attributeU32(IFLA_VXLAN.LINK, vxlan.parent);
    writer.attribute(local.length === 4 ? IFLA_VXLAN.LOCAL : IFLA_VXLAN.LOCAL6, local);
    writer.attributeU8(IFLA_VXLAN.LEARNING, 0);
    writer.attributeBe16(IFLA_VXLAN.PORT, vxlan.port);
    writer.attributeU8(IFLA_VXLAN.UDP_CSUM, 1);
  });
}

/** Changes a device; fields that are absent stay. `master: 0` takes it off its bridge. */
export function setLink(
  socket: NetlinkSocket,
  index: number,
  change: {
    readonly up?: boolean;
    readonly master?: number;
    readonly mtu?: number;
    readonly address?: string;
    readonly name?: string;
    /** Open descriptor of the namespace to move it to. */
    readonly netns?: number;
  },
): void {
  const writer = new MessageWriter(128);
  ifinfomsg(writer, 0, index, change.up ? IFF_UP : 0, change.up === undefined ? 0 : IFF_UP);
  if (change.name !== undefined) writer.attributeText(IFLA.IFNAME, checkName(change.name));
  if (change.mtu !== undefined) writer.attributeU32(IFLA.MTU, change.mtu);
  if (change.address !== undefined) writer.attribute(IFLA.ADDRESS, macBytes(change.address));
  if (change.master !== undefined) writer.attributeU32(IFLA.MASTER, change.master);
  if (change.netns !== undefined) writer.attributeU32(IFLA.NET_NS_FD, change.netns);
  socket.request(RTM_NEWLINK, 0, writer.bytes(), `link ${change.name ?? index}`);
}

/** Sets options of a bridge's port. `hairpin` lets a packet leave by the port it came in on. */
export function setBridgePort(
  socket: NetlinkSocket,
  index: number,
  port: { readonly hairpin?: boolean; readonly learning?: boolean; readonly flood?: boolean },
): void {
  const writer = new MessageWriter(64);
  ifinfomsg(writer, AF_BRIDGE, index, 0, 0);
  writer.nested(IFLA.PROTINFO, () => {
    if (port.hairpin !== undefined) writer.attributeU8(IFLA_BRPORT.HAIRPIN, Number(port.hairpin));
    if (port.learning !== undefined) writer.attributeU8(IFLA_BRPORT.LEARNING, Number(port.learning));
    if (port.flood !== undefined) writer.attributeU8(IFLA_BRPORT.UNICAST_FLOOD, Number(port.flood));
  });
  socket.request(RTM_SETLINK, 0, writer.bytes(), `bridge port ${index}`);
}

/** Deletes a device; false when there was none. A veth's peer goes with it. */
export function deleteLink(socket: NetlinkSocket, name: string): boolean {
  const writer = new MessageWriter(64);
  ifinfomsg(writer, 0, 0, 0, 0);
  writer.attributeText(IFLA.IFNAME, checkName(name));
  try {
    socket.request(RTM_DELLINK, 0, writer.bytes(), `link ${name}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENODEV')) return false;
    throw error;
  }
}

/** The device of a name, or null. */
export function getLink(socket: NetlinkSocket, name: string): Link | null {
  const writer = new MessageWriter(64);
  ifinfomsg(writer, 0, 0, 0, 0);
  writer.attributeText(IFLA.IFNAME, checkName(name));
  try {
    const [message] = socket.request(RTM_GETLINK, 0, writer.bytes(), `link ${name}`);
    return message ? readLink(message) : null;
  } catch (error) {
    if (hasCode(error, 'ENODEV')) return null;
    throw error;
  }
}

/** The device of a name; throws when there is none. */
export function requireLink(socket: NetlinkSocket, name: string): Link {
  const link = getLink(socket, name);
  if (link) return link;
  throw new FairleadError(`there is no network device ${name}`, {
    op: 'find network device',
    code: 'ENODEV',
    object: name,
  });
}

export function listLinks(socket: NetlinkSocket): Link[] {
  const writer = new MessageWriter(16);
  ifinfomsg(writer, 0, 0, 0, 0);
  return socket.dump(RTM_GETLINK, writer.bytes(), 'links').map(readLink);
}

/** Reads RTM_NEWLINK and RTM_DELLINK, also from events. */
export function readLink(message: NetlinkMessage): Link {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(16));
  const info = attributes.get(IFLA.LINKINFO);
  const kind = info && readAttributes(info).get(IFLA_INFO_KIND);
  const number = (type: number) => readNumber(attributes, type);
  return {
    index: readI32(payload, 4),
    name: readText(attributes.get(IFLA.IFNAME) ?? new Uint8Array()),
    kind: kind ? readText(kind) : null,
    up: (readU32(payload, 8) & IFF_UP) !== 0,
    mtu: number(IFLA.MTU),
    address: [...(attributes.get(IFLA.ADDRESS) ?? [])]
      .map((byte) => byte.toString(16).padStart(2, '0'))
      .join(':'),
    master: number(IFLA.MASTER),
    parent: number(IFLA.LINK),
  };
}

/** A 32-bit (or 16-bit) attribute, 0 where absent. */
export function readNumber(attributes: Attributes, type: number): number {
  const value = attributes.get(type);
  if (!value) return 0;
  return value.length >= 4 ? readU32(value) : readU16(value);
}

/** Six bytes of "02:00:00:00:00:01". */
export function macBytes(text: string): Uint8Array {
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(text)) {
    throw new FairleadError(`${JSON.stringify(text)} is no hardware address`, {
      op: 'write link',
      code: 'EINVAL',
    });
  }
  return Uint8Array.from(text.split(':'), (part) => Number.parseInt(part, 16));
}

function createLink(
  socket: NetlinkSocket,
  kind: string,
  link: {
    readonly name: string;
    readonly address?: string;
    readonly mtu?: number;
    readonly master?: number;
    readonly up?: boolean;
  },
  writeData: (writer: MessageWriter) => void,
): void {
  const writer = new MessageWriter(256);
  ifinfomsg(writer, 0, 0, link.up ? IFF_UP : 0, link.up ? IFF_UP : 0);
  writer.attributeText(IFLA.IFNAME, checkName(link.name));
  if (link.mtu !== undefined) writer.attributeU32(IFLA.MTU, link.mtu);
  if (link.address !== undefined) writer.attribute(IFLA.ADDRESS, macBytes(link.address));
  if (link.master !== undefined) writer.attributeU32(IFLA.MASTER, link.master);
  writer.nested(IFLA.LINKINFO, () => {
    writer.attributeText(IFLA_INFO_KIND, kind);
    writer.nested(IFLA_INFO_DATA, () => writeData(writer));
  });
  socket.request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, writer.bytes(), `${kind} ${link.name}`);
}

function ifinfomsg(
  writer: MessageWriter,
  family: number,
  index: number,
  flags: number,
  change: number,
): void {
  writer.u8(family).u8(0).u16(0).u32(index).u32(flags).u32(change);
}

/** IFNAMSIZ is 16 with the terminating zero. */
function checkName(name: string): string {
  if (name.length > 0 && name.length < 16 && !/[\s/:]/.test(name)) return name;
  throw new FairleadError(`${JSON.stringify(name)} is no name for a network device`, {
    op: 'write link',
    code: 'EINVAL',
    hint: 'use 1 to 15 characters without white space, slash and colon',
  });
}
