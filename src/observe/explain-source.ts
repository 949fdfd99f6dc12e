import type { Mode } from '../dataplane/dataplane.ts';
import { mayForwardAtSocket, modeDiffers } from '../dataplane/mode-differences.ts';
import { decideEgress } from '../egress/decide.ts';
import type { EgressDecision } from '../egress/model.ts';
import { cidrContains, familyOf, parseCidr } from '../lib/address.ts';
import type { VerdictCandidate } from '../service/decide.ts';
import type { Frontend, Packet, ServiceMap } from '../service/model.ts';
import { isLoopback, loopbackSource, podNetworkNode } from './explain-arrival.ts';
import { hostAt, nodeAt } from './explain-places.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Place } from './fact-requests.ts';

/** A packet that a node's proxy sends to one of the endpoints that it may choose. */
export interface ForwardedPacket {
  readonly origin: Origin;
  /** The Services as the node of the proxy has them. */
  readonly map: ServiceMap;
  readonly packet: Packet;
  readonly frontend: Frontend | null;
  readonly candidate: VerdictCandidate;
}

/** Returns the client address that an endpoint of a Service sees; null if unknown. */
export function sourceSeenBehind(view: ExplainView, forwarded: ForwardedPacket): string | null {
  const { origin, map, frontend, candidate } = forwarded;
  const { name } = map.node;
  const behindTables = sourceBehindTables(view, forwarded);
  const isAtSocket = view.mode(name) === 'ebpf' && frontend !== null && mayForwardAtSocket(frontend);
  if (origin.kind !== 'node' || !isAtSocket) return behindTables;
  // For processes of pods, the kernel chooses the source after the programs have replaced the destination; for other
  // processes of the node, it depends on their control group whether the programs apply.
  const atSocket = localSource(view, name, candidate.endpoint.ip);
  return origin.pod || atSocket === behindTables ? atSocket : null;
}

/**
 * Returns the source that the policies of an endpoint's node are applied to, if it is not that of the packet: an address of
 * the sending node. Null: that of the packet.
 */
export function sourceForPolicies(view: ExplainView, forwarded: ForwardedPacket): string | null {
  const { origin, map, packet, candidate } = forwarded;
  const { name } = map.node;
  const mode = view.mode(name);
  // A proxy applies the policies to its client, whichever address the endpoint sees.
  if (mode && modeDiffers(mode, 'server-sees-node'))
    return origin.kind === 'node' ? localSource(view, name, packet.destination) : null;
  if (!candidate.masquerade && origin.kind !== 'node') return null;
  // Unknown for some processes of the node in eBPF mode: one of its addresses.
  return sourceSeenBehind(view, forwarded) ?? map.node[familyOf(packet.destination) ?? 'ipv4'];
}

function sourceBehindTables(
  view: ExplainView,
  { origin, map, packet, frontend, candidate }: ForwardedPacket,
): string | null {
  const { endpoint, masquerade, hairpin } = candidate;
  const node = map.node.name;
  const mode = view.mode(node);
  if (mode && modeDiffers(mode, 'server-sees-node')) return localSource(view, node, endpoint.ip);
  const isKept = hairpin && keepsHairpinSource(mode, frontend, packet);
  if (masquerade && !isKept) {
    const chosen = origin.kind === 'node' ? localSource(view, node, packet.destination) : null;
    // The rules compare the source that the kernel chose, which may be the bridge's, an address of the pod network.
    if (chosen !== null && frontend?.kind === 'ClusterIP' && isUnmasqueraded(map, chosen)) return chosen;
    // Packets to processes of the node itself do not pass POSTROUTING, so they are not masqueraded.
    const isHere = nodeAt(view, endpoint.ip)?.metadata?.name === node;
    return isHere && origin.kind !== 'node' ? packet.source : masqueraded(view, node, endpoint.ip);
  }
  if (origin.kind === 'node') return localSource(view, node, packet.destination);
  return sourceSeenAt(view, origin, node, packet.source, endpoint.ip);
}

/**
 * Reports whether packets to cluster IPs keep a source address: an address of the pod network is kept, without
 * masqueradeAll.
 */
function isUnmasqueraded({ node: { masqueradeAll, localDetection } }: ServiceMap, source: string): boolean {
  if (masqueradeAll || !('ipv4' in localDetection)) return false;
  const cidr = localDetection[familyOf(source) ?? 'ipv4'];
  return cidr !== null && cidrContains(cidr, source);
}

/**
 * Reports whether a pod sees itself as the client if it is chosen as the endpoint: only if its socket was connected to
 * it.
 */
export function keepsHairpinSource(
  mode: Mode | null,
  frontend: Frontend | null,
  { sourceClass }: Packet,
): boolean {
  if (mode === null || frontend === null || !modeDiffers(mode, 'hairpin-keeps-source')) return false;
  const route = frontend.routes[sourceClass];
  return mayForwardAtSocket(frontend) && route.action === 'forward' && !route.masquerade;
}

/** Decides about a pod's packet by the egress gateways; null: none is concerned. */
export function egressOf(
  view: ExplainView,
  source: string,
  destination: string,
): Exclude<EgressDecision, { kind: 'stays' }> | null {
  const gateways = view.egress?.() ?? null;
  const decision = gateways && decideEgress(gateways, { source, destination });
  return decision === null || decision.kind === 'stays' ? null : decision;
}

/** Returns the client address that a host sees if no Service is involved; null if unknown. */
export function sourceSeenAt(
  view: ExplainView,
  origin: Origin,
  node: string,
  source: string,
  destination: string,
): string | null {
  if (isLoopback(destination)) return loopbackSource(destination);
  if (origin.kind === 'node') return localSource(view, node, destination);
  const egress = origin.kind === 'pod' ? egressOf(view, source, destination) : null;
  if (egress) return egress.kind === 'leaves' ? egress.address : null;
  if (origin.kind === 'pod' && leavesCluster(view, destination)) return masqueraded(view, node, destination);
  return source;
}

/**
 * Reports whether a pod's packets leave with the node's address: those to hosts other than pods and nodes
 * (src/network/egress.ts).
 */
function leavesCluster(view: ExplainView, destination: string): boolean {
  if (hostAt(view, destination) !== null) return true;
  if (nodeAt(view, destination) || view.podAt(destination)) return false;
  const family = familyOf(destination);
  const hasPodNetworks = [...view.nodes()].some(({ spec }) =>
    spec?.podCIDRs?.some((cidr) => parseCidr(cidr)?.family === family),
  );
  return hasPodNetworks && podNetworkNode(view, destination) === null;
}

function localSource(view: ExplainView, node: string, destination: string): string | null {
  const place: Place = { kind: 'node', node };
  return view.facts.route(place, destination)?.source ?? null;
}

/** Returns the source address of masqueraded packets to a destination; null if unknown. */
export function masqueraded(view: ExplainView, node: string, destination: string): string | null {
  const place: Place = { kind: 'node', node };
  return view.facts.route(place, destination)?.masqueradeSource ?? null;
}
