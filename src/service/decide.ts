import { cidrContains } from '../lib/address.ts';
import { addressFamily, isLoopback, readAddress } from './address-text.ts';
import type { Endpoint, Frontend, NodeView, NoRouteReason, Packet, ServiceMap } from './model.ts';
import { frontendKey } from './service-compiler.ts';

/** An endpoint that a packet may be sent to. */
export interface VerdictCandidate {
  readonly endpoint: Endpoint;
  /** 0 to 1; the odds of a verdict's candidates add up to 1. */
  readonly odds: number;
  /** The server sees an address of this node instead of the client's. */
  readonly masquerade: boolean;
  /** It is masqueraded because the client is the endpoint itself. */
  readonly hairpin: boolean;
}

export type VerdictReason =
  | 'forwarded'
  | NoRouteReason
  /** The source is outside the load balancer's source ranges. */
  | 'source-range'
  /** The destination is a cluster IP, but the port is not one of its Service. */
  | 'wrong-port'
  /** The destination is inside a service network, but belongs to no Service. */
  | 'unallocated-cluster-ip'
  /** An address of the service networks that this node answers itself. */
  | 'own-service-address'
  /** The destination is a loopback address, but the packet comes from outside the node. */
  | 'martian'
  /** The destination belongs to no Service: normal routing applies. */
  | 'no-service';

/** The verdict on a packet that opens a flow. */
export interface Verdict {
  readonly action: 'forward' | 'reject' | 'drop' | 'pass';
  readonly reason: VerdictReason;
  readonly frontend: Frontend | null;
  /** Empty unless forwarded. */
  readonly candidates: readonly VerdictCandidate[];
  /**
   * If not null, a client seen within this time returns to the same endpoint, provided that it still
   * serves.
   */
  readonly affinitySeconds: number | null;
}

/**
 * Decides, as the reference for every mode, a packet that opens a flow. Total: a packet with invalid
 * addresses passes.
 */
export function decide(map: ServiceMap, packet: Packet): Verdict {
  const source = readAddress(packet.source);
  const destination = readAddress(packet.destination);
  if (source === null || destination === null) return without('pass', 'no-service');
  if (map.node.ownServiceAddresses.includes(destination)) return without('pass', 'own-service-address');
  const loopback = isLoopback(destination);
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

/**
 * Returns true if node ports answer on this address, which the caller knows to be an address of the node.
 */
function isNodePortAddress(node: NodeView, address: string): boolean {
  if (isLoopback(address)) return node.localhostNodePorts;
  const selected = node.nodePortAddresses[addressFamily(address)];
  return selected.all || selected.cidrs.some((cidr) => cidrContains(cidr, address));
}

/** Frontends with an address come before node ports, which match on every address of the node. */
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

/** Packets to service addresses that belong to no Service must not leave by the default route. */
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
