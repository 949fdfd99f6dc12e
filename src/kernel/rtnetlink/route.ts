import { addressBytes, type Cidr, formatAddress, parseCidr } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes } from '../netlink/attributes.ts';
import { type NetlinkMessage, type NetlinkSocket, NLM_F_CREATE, NLM_F_REPLACE } from '../netlink/socket.ts';
import { readNumber } from './link.ts';

// linux/rtnetlink.h
const RTM_NEWROUTE = 24;
const RTM_DELROUTE = 25;
const RTM_GETROUTE = 26;
const AF_INET = 2;
const AF_INET6 = 10;
const RTA = { DST: 1, OIF: 4, GATEWAY: 5, PRIORITY: 6, PREFSRC: 7, TABLE: 15 } as const;
const RT_TABLE_MAIN = 254;
const RTN_UNICAST = 1;
const RT_SCOPE_UNIVERSE = 0;
const RT_SCOPE_LINK = 253;
const RT_SCOPE_NOWHERE = 255;
const RTNH_F_ONLINK = 4;
const RTM_F_CLONED = 0x200;

/** Marks routes as ours (rtnetlink(7): values from 4 on are for programs to choose), so that only ours are removed. */
export const ROUTE_PROTOCOL = 0x46;

export interface Route {
  readonly destination: Cidr;
  /** Address of the next hop; null: the destination is on the link. */
  readonly via: string | null;
  readonly index: number;
  /** Source address for packets of this node that take the route; null: the kernel's choice. */
  readonly source?: string | null;
  /** The next hop is on the link although no address says so (VXLAN). */
  readonly onlink?: boolean;
  readonly protocol?: number;
}

/** Writes a route, replacing one to the same destination. */
export function replaceRoute(socket: NetlinkSocket, route: Route): void {
  request(socket, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route);
}

/** Removes a route; false when there was none. */
export function deleteRoute(socket: NetlinkSocket, route: Route): boolean {
  try {
    request(socket, RTM_DELROUTE, 0, route);
    return true;
  } catch (error) {
    if (hasCode(error, 'ESRCH', 'ENODEV')) return false;
    throw error;
  }
}

/** The unicast routes of the main table, of both families. */
export function listRoutes(socket: NetlinkSocket): Route[] {
  const writer = new MessageWriter(16);
  writer.u32(0).u32(0).u32(0);
  return socket.dump(RTM_GETROUTE, writer.bytes(), 'routes').flatMap((message) => readRoute(message) ?? []);
}

/** Reads RTM_NEWROUTE and RTM_DELROUTE, also from events; null for what is no unicast route of the main table. */
export function readRoute(message: NetlinkMessage): Route | null {
  const { payload } = message;
  const [family, prefix = 0, , , table, protocol = 0, , type] = payload;
  if ((family !== AF_INET && family !== AF_INET6) || type !== RTN_UNICAST) return null;
  const flags = readNumber(new Map([[0, payload.subarray(8, 12)]]), 0);
  if (flags & RTM_F_CLONED) return null;
  const attributes = readAttributes(payload.subarray(12));
  if ((readNumber(attributes, RTA.TABLE) || table) !== RT_TABLE_MAIN) return null;
  const base = attributes.get(RTA.DST) ?? new Uint8Array(family === AF_INET ? 4 : 16);
  const destination = parseCidr(`${formatAddress(base)}/${prefix}`);
  if (!destination) return null;
  const text = (type: number) => {
    const bytes = attributes.get(type);
    return bytes ? formatAddress(bytes) : null;
  };
  return {
    destination,
    via: text(RTA.GATEWAY),
    index: readNumber(attributes, RTA.OIF),
    source: text(RTA.PREFSRC),
    onlink: (flags & RTNH_F_ONLINK) !== 0,
    protocol,
  };
}

function request(socket: NetlinkSocket, type: number, flags: number, route: Route): void {
  const { destination, via } = route;
  const writer = new MessageWriter(96);
  writer.u8(destination.family === 'ipv4' ? AF_INET : AF_INET6);
  writer
    .u8(destination.prefix)
    .u8(0)
    .u8(0)
    .u8(RT_TABLE_MAIN)
    .u8(route.protocol ?? ROUTE_PROTOCOL);
  // A deletion matches on what it names; scope "nowhere" and type 0 match any.
  const onLink = via === null && destination.family === 'ipv4';
  if (type === RTM_DELROUTE) writer.u8(RT_SCOPE_NOWHERE).u8(0);
  else writer.u8(onLink ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE).u8(RTN_UNICAST);
  writer.u32(route.onlink ? RTNH_F_ONLINK : 0);
  writer.attribute(RTA.DST, destination.bytes);
  writer.attributeU32(RTA.OIF, route.index);
  if (via !== null) writer.attribute(RTA.GATEWAY, requireBytes(via));
  if (route.source) writer.attribute(RTA.PREFSRC, requireBytes(route.source));
  socket.request(
    type,
    flags,
    writer.bytes(),
    `route ${destination.text}${via === null ? '' : ` via ${via}`}`,
  );
}

function requireBytes(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (!bytes) throw new FairleadError(`${address} is no address`, { op: 'write route', code: 'EINVAL' });
  return bytes;
}
