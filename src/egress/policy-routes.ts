import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { findLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import {
  deleteRoute,
  listRoutes,
  ROUTE_PROTOCOL,
  type Route,
  replaceRoute,
} from '../kernel/rtnetlink/routes.ts';
import { addRule, deleteRule, listRules, type RoutingRule } from '../kernel/rtnetlink/rules.ts';
import type { IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { isRoutingTable, markOf, RULE_PRIORITY, routingTableOf } from './marks.ts';

/** The next hop to a node of the cluster. */
export interface NextHop {
  readonly via: string;
  /** The tunnel's name; null: the node is on the uplink's link. */
  readonly device: string | null;
}

/** The way of the packets that wait for an address, or go to the node that has it. */
export interface Way {
  readonly family: IPFamily;
  /** The address's number. */
  readonly number: number;
  /** Null: no node, or this one: the kernel drops what it does not translate itself. */
  readonly hop: NextHop | null;
}

/** The routing tables of addresses, and the rules that select them by mark. They stay when this is closed. */
export interface PolicyRoutes {
  /** Writes exactly these; returns a description of what was different, except what the last call left. Throws the kernel's error. */
  write(ways: readonly Way[]): string[];
  /** Compares with the kernel, and writes what is different. */
  check(): string[];
  close(): void;
}

const DEFAULT: Readonly<Record<IPFamily, string>> = { ipv4: '0.0.0.0/0', ipv6: '::/0' };
const ALL_BITS = 0xffff_ffff;
const FAMILIES = ['ipv4', 'ipv6'] as const;

/** `bridge`: the name of the pods' bridge. */
export function openPolicyRoutes(bridge: string, netns?: NetnsRef): PolicyRoutes {
  const socket = openRouteSocket(netns);
  let last: readonly Way[] = [];
  let known: Map<string, string> | null = null;
  const write = (ways: readonly Way[]): string[] => {
    const before = known;
    known = null;
    const next = new Map(ways.map((way) => [keyOf(way), JSON.stringify(way.hop)]));
    const changes: string[] = [];
    for (const way of ways) {
      const key = keyOf(way);
      if (before?.get(key) === next.get(key)) continue;
      changes.push(...writeWay(socket, way, bridge));
    }
    if (before === null) changes.push(...removeOthers(socket, ways));
    else {
      const gone = [...before.keys()].filter((key) => !next.has(key));
      if (gone.length > 0) changes.push(...removeOthers(socket, ways));
    }
    known = next;
    last = ways;
    return changes;
  };
  return {
    write,
    check() {
      known = null;
      return write(last);
    },
    close: () => socket.close(),
  };
}

/** Removes all rules and tables of addresses, of any agent. */
export function removePolicyRoutes(netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  removeOthers(socket, []);
}

const keyOf = ({ family, number }: Way): string => `${family} ${number}`;

/**
 * Returns the rule for packets that come from the bridge. A packet keeps its mark in the tunnel, and the kernel finds the route of the
 * outer packet by it: that must not lead into the tunnel again.
 */
const ruleOf = ({ family, number }: Pick<Way, 'family' | 'number'>, bridge: string): RoutingRule => ({
  family,
  incoming: bridge,
  priority: RULE_PRIORITY,
  table: routingTableOf(number),
  mark: markOf(number),
  markMask: ALL_BITS,
});

function writeWay(socket: NetlinkSocket, way: Way, bridge: string): string[] {
  const table = routingTableOf(way.number);
  const [current] = listRoutes(socket, { family: way.family, table });
  const wanted = routeOf(socket, way, table);
  const changes: string[] = [];
  if (!isSame(current, wanted)) {
    // A route of another type is not replaced in IPv6, but would come beside it.
    if (current && way.family === 'ipv6' && current.type !== (wanted.type ?? 'unicast')) {
      replaceByMetric(socket, current, wanted);
    } else replaceRoute(socket, wanted);
    changes.push(`route of table ${table} (${way.family})`);
  }
  const rule = ruleOf(way, bridge);
  const hasRule = listRules(socket, way.family).some(
    (one) =>
      one.table === table &&
      one.mark === rule.mark &&
      one.incoming === bridge &&
      one.priority === rule.priority,
  );
  if (!hasRule) {
    addRule(socket, rule);
    changes.push(`rule of table ${table} (${way.family})`);
  }
  return changes;
}

/** Adds the new route before the old one goes: in between, packets must not take the main table. */
function replaceByMetric(socket: NetlinkSocket, current: Route, wanted: Route): void {
  const metric = current.metric === METRICS[0] ? METRICS[1] : METRICS[0];
  replaceRoute(socket, { ...wanted, metric });
  deleteRoute(socket, current);
}

const METRICS = [1024, 1023] as const;

function routeOf(socket: NetlinkSocket, { family, hop }: Way, table: number): Route {
  const common = { destination: DEFAULT[family], table, protocol: ROUTE_PROTOCOL.fairlead };
  if (hop === null) return { ...common, type: 'blackhole' };
  if (hop.device === null) return { ...common, via: hop.via };
  const device = findLink(socket, hop.device)?.index;
  if (device === undefined)
    throw new FairleadError(`no device ${hop.device}, by which packets reach the node of an egress gateway`, {
      op: 'write egress route',
      code: 'ENODEV',
      object: hop.device,
    });
  return { ...common, via: hop.via, device, ...(family === 'ipv4' ? { onlink: true } : {}) };
}

const isSame = (current: Route | undefined, wanted: Route): boolean =>
  current !== undefined &&
  current.destination === wanted.destination &&
  (current.type ?? 'unicast') === (wanted.type ?? 'unicast') &&
  current.via === wanted.via &&
  (wanted.device === undefined || current.device === wanted.device);

function removeOthers(socket: NetlinkSocket, ways: readonly Way[]): string[] {
  const wanted = new Set(ways.map(keyOf));
  const changes: string[] = [];
  for (const family of FAMILIES) {
    const tables = new Set<number>();
    for (const rule of listRules(socket, family)) {
      if (!isRoutingTable(rule.table) || wanted.has(`${family} ${rule.table & 0xfff}`)) continue;
      deleteRule(socket, rule);
      tables.add(rule.table);
      changes.push(`rule of table ${rule.table} (${family}) was left`);
    }
    for (const table of tables)
      for (const route of listRoutes(socket, { family, table })) deleteRoute(socket, route);
  }
  return changes;
}
