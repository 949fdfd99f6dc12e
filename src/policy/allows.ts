import { selects } from '../kube/selector.ts';
import { canonicalAddress } from '../lib/address.ts';
import { blockContains } from './address-block.ts';
import type {
  Direction,
  PodGroup,
  Policy,
  PolicyMap,
  PolicyPeer,
  PolicyPod,
  PolicyPort,
  Protocol,
} from './model.ts';

/** The first packet of a flow on its way between the pods: after destination NAT, before source NAT. */
export interface PolicyPacket {
  readonly source: string;
  readonly destination: string;
  /** Another protocol, such as ICMP: no rule with ports allows it. */
  readonly protocol: Protocol | 'other';
  readonly port: number;
  /** The source that the receiver's node sees, if it is rewritten on the way. Default: `source`. */
  readonly seenFrom?: string;
  /** The node whose process sent the packet; absent: it comes from a pod or from outside. */
  readonly fromNode?: string;
}

export type PolicyReason =
  /** The address does not belong to a pod that is subject to policies. */
  | { readonly kind: 'no-pod' }
  | { readonly kind: 'not-isolated' }
  | { readonly kind: 'itself' }
  /** Probes of the kubelet, and all other traffic from the pod's node. */
  | { readonly kind: 'own-node' }
  /** `peer`: its index in the rule; null: the rule has no peers. */
  | { readonly kind: 'rule'; readonly policy: string; readonly rule: number; readonly peer: number | null }
  /** The policies that isolate the pod; none of their rules allows the packet. */
  | { readonly kind: 'no-rule'; readonly policies: readonly string[] };

/** The decision at one end of a flow. */
export interface EndVerdict {
  readonly direction: Direction;
  /** "namespace/name"; null: no pod. */
  readonly pod: string | null;
  readonly isAllowed: boolean;
  readonly reason: PolicyReason;
}

export interface PolicyVerdict {
  readonly isAllowed: boolean;
  readonly egress: EndVerdict;
  readonly ingress: EndVerdict;
}

/**
 * Decides whether the policies of a cluster allow a packet, and names the rule: the reference for every
 * mode. A packet passes if its sender's policies for egress and its receiver's for ingress allow it. Pods
 * reach themselves, and a node reaches its pods, regardless of policies (NetworkPolicySpec in
 * networking.k8s.io/v1).
 */
export function allows(map: PolicyMap, packet: PolicyPacket): PolicyVerdict {
  const egress = decideEnd(map, packet, 'egress');
  const ingress = decideEnd(map, packet, 'ingress');
  return { isAllowed: egress.isAllowed && ingress.isAllowed, egress, ingress };
}

function decideEnd(map: PolicyMap, packet: PolicyPacket, direction: Direction): EndVerdict {
  const sender = direction === 'ingress' ? (packet.seenFrom ?? packet.source) : packet.source;
  const source = packet.fromNode === undefined ? podAt(map, sender) : null;
  const destination = podAt(map, packet.destination);
  const pod = direction === 'egress' ? source : destination;
  const verdict = (isAllowed: boolean, reason: PolicyReason): EndVerdict => ({
    direction,
    pod: pod?.key ?? null,
    isAllowed,
    reason,
  });
  if (!pod) return verdict(true, { kind: 'no-pod' });
  if (source === destination) return verdict(true, { kind: 'itself' });
  if (direction === 'ingress' && packet.fromNode === pod.node) return verdict(true, { kind: 'own-node' });
  const policies = isolating(map, pod, direction);
  if (policies.length === 0) return verdict(true, { kind: 'not-isolated' });
  const other = direction === 'egress' ? destination : source;
  const address = direction === 'egress' ? packet.destination : sender;
  for (const policy of policies) {
    for (const [index, rule] of (policy[direction] ?? []).entries()) {
      if (rule.ports && !rule.ports.some((port) => matchesPort(port, packet, destination))) continue;
      const peer = rule.peers?.findIndex((one) => matchesPeer(map, one, other, address)) ?? null;
      if (peer !== -1) return verdict(true, { kind: 'rule', policy: policy.key, rule: index, peer });
    }
  }
  return verdict(false, { kind: 'no-rule', policies: policies.map(({ key }) => key) });
}

/** Returns the policies that isolate a pod in a direction, by name. */
export const isolating = (map: PolicyMap, pod: PolicyPod, direction: Direction): Policy[] =>
  map
    .policiesIn(pod.namespace)
    .filter((policy) => policy[direction] !== null && selects(policy.selector, pod.labels));

function podAt(map: PolicyMap, address: string): PolicyPod | null {
  const canonical = canonicalAddress(address);
  return canonical === null ? null : map.podAt(canonical);
}

function matchesPeer(map: PolicyMap, peer: PolicyPeer, pod: PolicyPod | null, address: string): boolean {
  return peer.kind === 'block'
    ? blockContains(peer.block, address)
    : pod !== null && inGroup(peer.group, pod, map.namespaceLabels(pod.namespace));
}

/**
 * Returns true if a group contains a pod. `labels` of the pod's namespace; null: not known; then no
 * selector selects it.
 */
export const inGroup = (
  group: PodGroup,
  pod: PolicyPod,
  labels: Readonly<Record<string, string>> | null,
): boolean => coversNamespace(group, pod.namespace, labels) && selects(group.pods, pod.labels);

export const coversNamespace = (
  { namespaces }: PodGroup,
  namespace: string,
  labels: Readonly<Record<string, string>> | null,
): boolean =>
  typeof namespaces === 'string' ? namespaces === namespace : labels !== null && selects(namespaces, labels);

function matchesPort(port: PolicyPort, packet: PolicyPacket, destination: PolicyPod | null): boolean {
  if (port.protocol !== packet.protocol) return false;
  if (port.kind === 'range') return port.first <= packet.port && packet.port <= port.last;
  return (destination?.ports ?? []).some(
    ({ name, protocol, port: number }) =>
      name === port.name && protocol === port.protocol && number === packet.port,
  );
}
