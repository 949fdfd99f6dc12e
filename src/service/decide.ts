import { cidrContains } from '../lib/address.ts';
import { addressFamily, readAddress, unusableAs } from './address-text.ts';
import type { Endpoint, Frontend, NodeView, NoRouteReason, Packet, ServiceMap } from './model.ts';
import { frontendKey } from './service-compiler.ts';

/** An endpoint that a packet may be sent to. */
export interface VerdictCandidate {
  readonly endpoint: Endpoint;
  /** 0 to 1; all of a verdict add up to 1. */
  readonly odds: number;
  /** The server sees an address of this node instead of the client's. */
  readonly masquerade: boolean;
  /** It is masqueraded because the endpoint itself is the client. */
  readonly hairpin: boolean;
}

export type VerdictReason =
  | 'forwarded'
  | NoRouteReason
  /** The source is in none of the load balancer's source ranges. */
  | 'source-range'
  /** A cluster IP, but no port of its Service. */
  | 'wrong-port'
  /** Inside a service network, but no Service's address. */
  | 'unallocated-cluster-ip'
  /** An address of the service networks that this node answers itself. */
  | 'own-service-address'
  /** To a loopback address from elsewhere. */
  | 'martian'
  /** No Service is meant: routed as if there were none. */
  | 'no-service';

/** The verdict on a packet that opens a flow. */
export interface Verdict {
  readonly action: 'forward' | 'reject' | 'drop' | 'pass';
  readonly reason: VerdictReason;
  readonly frontend: Frontend | null;
  /** Empty unless forwarded. */
  readonly candidates: readonly VerdictCandidate[];
  /** Not null: a client seen within this time returns to the same endpoint, if that still serves. */
  readonly affinitySeconds: number | null;
}

/**
 * The oracle: what every mode must do with a packet that opens a flow. Total: a packet with addresses that are none
 * passes.
 */
export function decide(map: ServiceMap, packet: Packet): Verdict {
  const source = readAddress(packet.source);
  const destination = readAddress(packet.destination);
  if (source === null || destination === null) return without('pass', 'no-service');
  if (map.node.ownServiceAddresses.includes(destination)) return without('pass', 'own-service-address');
  const loopback = unusableAs(destination) === 'a loopback address';
  if (loopback && packet.sourceClass !== 'node') return without('drop', 'martian');
  const frontend = findFrontend(map, packet, destination, loopback);
  if (!frontend) return guardRail(map, destination);
  if (frontend.allowedSources && !frontend.allowedSources.some((cidr) => cidrContains(cidr, source))) {
    return without('drop', 'source-range', frontend);
  }
  const route = frontend.routes[packet.sourceClass];
  if (route.action !== 'forward') return without(route.action, route.reason, frontend);
  const { endpoints } = route.pool;
  return {
    action: 'forward',
    reason: 'forwarded',
    frontend,
    candidates: endpoints.map((endpoint) => {
      const hairpin = endpoint.ip === source && map.hairpinAddresses.has(source);
      return { endpoint, odds: 1 / endpoints.length, masquerade: route.masquerade || hairpin, hairpin };
    }),
    affinitySeconds: frontend.affinitySeconds,
  };
}

/** True when node ports answer on this address, which the caller knows to be one of the node's. */
export function isNodePortAddress(node: NodeView, address: string): boolean {
  if (unusableAs(address) === 'a loopback address') return node.localhostNodePorts;
  const selected = node.nodePortAddresses[addressFamily(address)];
  return selected.all || selected.cidrs.some((cidr) => cidrContains(cidr, address));
}

/** An address and port of their own come before node ports, which match on every address that the node has. */
function findFrontend(
  map: ServiceMap,
  { protocol, port, destinationIsLocal }: Packet,
  destination: string,
  loopback: boolean,
): Frontend | null {
  const family = addressFamily(destination);
  const exact = map.frontends.get(frontendKey(family, destination, protocol, port));
  if (exact) return exact;
  const local = destinationIsLocal ?? (loopback || destination === map.node[family]);
  if (!local || !isNodePortAddress(map.node, destination)) return null;
  return map.frontends.get(frontendKey(family, null, protocol, port)) ?? null;
}

/** Packets to service addresses that no Service wants must not leave by the default route. */
function guardRail(map: ServiceMap, destination: string): Verdict {
  if (map.clusterIPs.has(destination)) return without('reject', 'wrong-port');
  if (map.node.serviceCidrs.some((cidr) => cidrContains(cidr, destination))) {
    return without('drop', 'unallocated-cluster-ip');
  }
  return without('pass', 'no-service');
}

function without(
  action: 'reject' | 'drop' | 'pass',
  reason: VerdictReason,
  frontend: Frontend | null = null,
): Verdict {
  return { action, reason, frontend, candidates: [], affinitySeconds: null };
}
