import { addressBytes, formatAddress, type IPFamily, parseCidr } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { type Attributes, MessageWriter, readAttributes, readU32 } from '../netlink/attributes.ts';
import {
  type NetlinkMessage,
  type NetlinkSocket,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from '../netlink/socket.ts';
import {
  AF_INET,
  AF_INET6,
  AF_UNSPEC,
  RT_TABLE_MAIN,
  RTA_DST,
  RTA_GATEWAY,
  RTA_METRICS,
  RTA_OIF,
  RTA_PREFSRC,
  RTA_PRIORITY,
  RTA_TABLE,
  RTAX_MTU,
  RTM_DELROUTE,
  RTM_GETROUTE,
  RTM_NEWROUTE,
  RTNH_F_ONLINK,
} from './constants.ts';

// RTN_* of linux/rtnetlink.h
const TYPES = {
  unicast: 1,
  local: 2,
  broadcast: 3,
  anycast: 4,
  multicast: 5,
  blackhole: 6,
  unreachable: 7,
  prohibit: 8,
  throw: 9,
};

export type RouteType = keyof typeof TYPES;

/** RTPROT_*: the program that made a route. `fairlead` is an unregistered number (70 is "F"). */
export const ROUTE_PROTOCOL = { kernel: 2, boot: 3, static: 4, fairlead: 70 } as const;

/** A route. */
export interface Route {
  /** "10.244.1.0/24"; "0.0.0.0/0" or "::/0" is the default route. */
  readonly destination: string;
  /** Next hop. */
  readonly via?: string;
  /** Index of the device. */
  readonly device?: number;
  /** Source address that this machine prefers for the route. */
  readonly source?: string;
  /** The next hop is on the device's link even if no route leads to it. */
  readonly onlink?: boolean;
  /** Default 254, main. */
  readonly table?: number;
  /** Default: 0 for IPv4, 1024 for IPv6 (the kernel's). */
  readonly metric?: number;
  readonly protocol?: number;
  /** Default unicast. */
  readonly type?: RouteType;
  /** Largest packet on this route. */
  readonly mtu?: number;
}

/** Adds a route. Throws EEXIST if a route to the same destination with the same metric exists. */
export function addRoute(socket: NetlinkSocket, route: Route): void {
  socket.request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, encodeRoute(route), `add route ${describe(route)}`);
}

/** Adds a route or replaces the one with the same destination and metric. */
export function replaceRoute(socket: NetlinkSocket, route: Route): void {
  socket.request(
    RTM_NEWROUTE,
    NLM_F_CREATE | NLM_F_REPLACE,
    encodeRoute(route),
    `replace route ${describe(route)}`,
  );
}

/** Removes a route. Returns false if it does not exist. */
export function deleteRoute(socket: NetlinkSocket, route: Route): boolean {
  try {
    socket.request(RTM_DELROUTE, 0, encodeRoute(route, true), `delete route ${describe(route)}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'ESRCH', 'ENODEV')) return false;
    throw error;
  }
}

/** Which routes `listRoutes` returns; by default, those of the main table. */
export interface RouteFilter {
  readonly family?: IPFamily;
  readonly table?: number;
  readonly device?: number;
  readonly protocol?: number;
}

export function listRoutes(socket: NetlinkSocket, filter: RouteFilter = {}): Route[] {
  const family = filter.family === undefined ? AF_UNSPEC : filter.family === 'ipv4' ? AF_INET : AF_INET6;
  const table = filter.table ?? RT_TABLE_MAIN;
  const writer = new MessageWriter(64)
    .u8(family)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(filter.protocol ?? 0)
    .u8(0)
    .u8(0)
    .u32(0);
  writer.attributeU32(RTA_TABLE, table);
  if (filter.device !== undefined) writer.attributeU32(RTA_OIF, filter.device);
  let messages: NetlinkMessage[];
  try {
    messages = socket.dump(RTM_GETROUTE, writer.bytes(), 'routes');
  } catch (error) {
    // With strict checking the kernel returns ENOENT for a table that was never used.
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
  const routes: Route[] = [];
  for (const message of messages) {
    const route = readRoute(message);
    if (
      route &&
      route.table === table &&
      (filter.device === undefined || route.device === filter.device) &&
      (filter.protocol === undefined || route.protocol === filter.protocol)
    ) {
      routes.push(route);
    }
  }
  return routes;
}

/** Returns the route that a packet to an address takes; null if there is none. */
export function findRoute(socket: NetlinkSocket, destination: string): Route | null {
  const bytes = addressBytes(destination);
  if (!bytes) {
    throw new FairleadError(`${JSON.stringify(destination)} is not an address`, {
      op: 'find route',
      code: 'EINVAL',
      object: destination,
    });
  }
  const writer = new MessageWriter(64)
    .u8(bytes.length === 4 ? AF_INET : AF_INET6)
    .u8(bytes.length * 8)
    .u16(0)
    .u32(0)
    .u32(0);
  writer.attribute(RTA_DST, bytes);
  try {
    const [reply] = socket.request(RTM_GETROUTE, 0, writer.bytes(), `route to ${destination}`);
    return reply ? readRoute(reply) : null;
  } catch (error) {
    // The last two codes are the errors of prohibit and blackhole routes.
    if (hasCode(error, 'ENETUNREACH', 'EHOSTUNREACH', 'EACCES', 'EINVAL')) return null;
    throw error;
  }
}

/** Reads an RTM_NEWROUTE or RTM_DELROUTE message (struct rtmsg and attributes); null for other families' routes. */
export function readRoute(message: NetlinkMessage): Route | null {
  const { payload } = message;
  const family = payload[0];
  if (family !== AF_INET && family !== AF_INET6) return null;
  const attributes = readAttributes(payload.subarray(12));
  const destination = attributes.get(RTA_DST) ?? new Uint8Array(family === AF_INET ? 4 : 16);
  const metrics = attributes.get(RTA_METRICS);
  const mtu = metrics && number(readAttributes(metrics), RTAX_MTU);
  const type = (Object.keys(TYPES) as RouteType[]).find((name) => TYPES[name] === payload[7]);
  return {
    destination: `${formatAddress(destination)}/${payload[1]}`,
    table: number(attributes, RTA_TABLE) ?? payload[4] ?? 0,
    protocol: payload[5] ?? 0,
    type: type ?? 'unicast',
    ...optional('via', address(attributes, RTA_GATEWAY)),
    ...optional('device', number(attributes, RTA_OIF)),
    ...optional('source', address(attributes, RTA_PREFSRC)),
    ...optional('metric', number(attributes, RTA_PRIORITY)),
    ...optional('mtu', mtu),
    ...(readU32(payload, 8) & RTNH_F_ONLINK ? { onlink: true } : {}),
  };
}

function optional<K extends string, V>(key: K, value: V | undefined): { [key in K]?: V } {
  return (value === undefined ? {} : { [key]: value }) as { [key in K]?: V };
}

const RT_SCOPE_UNIVERSE = 0;
const RT_SCOPE_LINK = 253;
const RT_SCOPE_HOST = 254;
const RT_SCOPE_NOWHERE = 255;

function encodeRoute(route: Route, forDelete = false): Uint8Array {
  const destination = parseCidr(route.destination);
  if (!destination) throw invalid(route, `${JSON.stringify(route.destination)} is not a network`);
  const v4 = destination.family === 'ipv4';
  const type = TYPES[route.type ?? 'unicast'];
  const writer = new MessageWriter(128)
    .u8(v4 ? AF_INET : AF_INET6)
    .u8(destination.prefix)
    .u8(0)
    .u8(0)
    // Table numbers above 255 are only in RTA_TABLE.
    .u8(0)
    .u8(forDelete ? (route.protocol ?? 0) : (route.protocol ?? ROUTE_PROTOCOL.static))
    .u8(scopeOf(route, forDelete, v4))
    .u8(forDelete && route.type === undefined ? 0 : type)
    .u32(route.onlink ? RTNH_F_ONLINK : 0);
  writer.attributeU32(RTA_TABLE, route.table ?? RT_TABLE_MAIN);
  if (destination.prefix > 0) writer.attribute(RTA_DST, destination.bytes);
  if (route.via !== undefined) writer.attribute(RTA_GATEWAY, bytesOf(route, 'via', route.via, v4));
  if (route.device !== undefined) writer.attributeU32(RTA_OIF, route.device);
  if (route.source !== undefined) writer.attribute(RTA_PREFSRC, bytesOf(route, 'source', route.source, v4));
  if (route.metric !== undefined) writer.attributeU32(RTA_PRIORITY, route.metric);
  const { mtu } = route;
  if (mtu !== undefined) writer.nested(RTA_METRICS, () => writer.attributeU32(RTAX_MTU, mtu));
  return writer.bytes();
}

/** IPv4 requires the scope of the destination; for a deletion, "nowhere" matches any scope. */
function scopeOf(route: Route, forDelete: boolean, v4: boolean): number {
  if (!v4) return RT_SCOPE_UNIVERSE;
  if (forDelete) return RT_SCOPE_NOWHERE;
  if (route.type === 'local') return RT_SCOPE_HOST;
  return route.via === undefined && route.device !== undefined ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
}

function bytesOf(route: Route, field: string, text: string, v4: boolean): Uint8Array {
  const bytes = addressBytes(text);
  if (!bytes || (bytes.length === 4) !== v4) {
    throw invalid(route, `${field} ${JSON.stringify(text)} is not an address of the destination's family`);
  }
  return bytes;
}

function invalid(route: Route, message: string): FairleadError {
  return new FairleadError(`route ${describe(route)}: ${message}`, { op: 'encode route', code: 'EINVAL' });
}

function describe(route: Route): string {
  const via = route.via === undefined ? '' : ` via ${route.via}`;
  const device = route.device === undefined ? '' : ` device ${route.device}`;
  return `${route.destination}${via}${device}`;
}

function address(attributes: Attributes, type: number): string | undefined {
  const value = attributes.get(type);
  return value && formatAddress(value);
}

function number(attributes: Attributes, type: number): number | undefined {
  const value = attributes.get(type);
  return value && readU32(value);
}
