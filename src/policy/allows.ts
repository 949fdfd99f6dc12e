import { selects } from '../kube/selector.ts';
import { canonicalAddress } from '../lib/address.ts';
import { blockContains } from './address-block.ts';
import type {
  Direction,
  LearnedAddress,
  PodGroup,
  Policy,
  PolicyMap,
  PolicyPeer,
  PolicyPod,
  PolicyPort,
  PolicyRule,
  Protocol,
  Tier,
} from './model.ts';
import { comparePolicies, TIERS } from './model.ts';

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
  /** No policy applies to the pod, or those of the whole cluster that do have no rule for the packet. */
  | { readonly kind: 'not-isolated' }
  | { readonly kind: 'itself' }
  /** Probes of the kubelet, and all other traffic from the pod's node. */
  | { readonly kind: 'own-node' }
  /** The rule accepts or denies the packet. `peer`: its index in the rule; null: the rule has no peers. */
  | {
      readonly kind: 'rule';
      readonly policy: string;
      readonly tier: Tier;
      readonly rule: number;
      readonly peer: number | null;
      /** See `PolicyRule.field`. */
      readonly field?: string;
      /** The peer is a list of names: the one by which the pod got the address. */
      readonly learned?: LearnedAddress;
    }
  /** The NetworkPolicies that isolate the pod; none of their rules allows the packet. */
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
 * mode. A packet passes if its sender's policies for egress and its receiver's for ingress allow it. At each
 * end the tiers decide in turn: the first rule of a policy of the whole cluster that matches, then the pod's
 * NetworkPolicies, then the baseline (ClusterNetworkPolicySpec in policy.networking.k8s.io). Pods
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
  const end = {
    pod,
    packet,
    destination,
    other: direction === 'egress' ? destination : source,
    address: direction === 'egress' ? packet.destination : sender,
  };
  for (const tier of TIERS) {
    const ofTier = policies.filter((policy) => policy.tier === tier);
    const found = firstMatch(map, ofTier, direction, end);
    if (found && found.action !== 'Pass') {
      const { policy, rule, peer } = found;
      const { field, peers } = policy[direction]?.[rule] ?? {};
      const learned = learnedBy(map, peers?.[peer ?? -1], pod, end.address);
      return verdict(found.action === 'Accept', {
        ...{ kind: 'rule', policy: policy.key, tier, rule, peer },
        ...(field === undefined ? {} : { field }),
        ...(learned ? { learned } : {}),
      });
    }
    if (tier === 'NetworkPolicy' && ofTier.length > 0)
      return verdict(false, { kind: 'no-rule', policies: ofTier.map(({ key }) => key) });
  }
  return verdict(true, { kind: 'not-isolated' });
}

/** The other end of a packet, as the rules of one end's policies see it. */
interface OtherEnd {
  /** The pod whose policies decide. */
  readonly pod: PolicyPod;
  readonly packet: PolicyPacket;
  readonly destination: PolicyPod | null;
  readonly other: PolicyPod | null;
  readonly address: string;
}

interface Match {
  readonly policy: Policy;
  readonly action: PolicyRule['action'];
  readonly rule: number;
  readonly peer: number | null;
}

function firstMatch(
  map: PolicyMap,
  policies: readonly Policy[],
  direction: Direction,
  { pod, packet, destination, other, address }: OtherEnd,
): Match | null {
  for (const policy of policies) {
    for (const [index, rule] of (policy[direction] ?? []).entries()) {
      if (rule.ports && !rule.ports.some((port) => matchesPort(port, packet, destination))) continue;
      const peer = rule.peers?.findIndex((one) => matchesPeer(map, one, other, address, pod)) ?? null;
      if (peer !== -1) return { policy, action: rule.action, rule: index, peer };
    }
  }
  return null;
}

/** Returns the policies that apply to a pod in a direction, in the order of evaluation. */
export const isolating = (map: PolicyMap, pod: PolicyPod, direction: Direction): Policy[] => {
  const applies = (policy: Policy) =>
    policy[direction] !== null && inGroup(policy.subject, pod, map.namespaceLabels(pod.namespace));
  const own = map.policiesIn(pod.namespace).filter(applies);
  const cluster = map.clusterPolicies().filter(applies);
  return cluster.length === 0 ? own : [...cluster, ...own].sort(comparePolicies);
};

function podAt(map: PolicyMap, address: string): PolicyPod | null {
  const canonical = canonicalAddress(address);
  return canonical === null ? null : map.podAt(canonical);
}

function nodeAt(map: PolicyMap, address: string): PolicyPod | null {
  const canonical = canonicalAddress(address);
  return canonical === null ? null : map.nodeAt(canonical);
}

/**
 * Reports whether a peer of a rule selects a pod, or an address; `pod`: the pod with the address; `subject`: the pod whose policy
 * has the rule.
 */
export function matchesPeer(
  map: PolicyMap,
  peer: PolicyPeer,
  pod: PolicyPod | null,
  address: string,
  subject: PolicyPod | null,
): boolean {
  if (peer.kind === 'names') return learnedBy(map, peer, subject, address) !== null;
  if (peer.kind === 'block') return blockContains(peer.block, address);
  const member = peer.group.namespaces === '' ? nodeAt(map, address) : pod;
  return member !== null && inGroup(peer.group, member, map.namespaceLabels(member.namespace));
}

/** Returns by which name of a peer a pod got an address; null: by none. */
function learnedBy(
  map: PolicyMap,
  peer: PolicyPeer | undefined,
  pod: PolicyPod | null,
  address: string,
): LearnedAddress | null {
  if (peer?.kind !== 'names' || !pod) return null;
  const canonical = canonicalAddress(address);
  return canonical === null ? null : map.learned(pod.key, peer.group, canonical);
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

/** Reports whether a port of a rule is that of a packet; `destination`: the pod that it is sent to, whose ports may have names. */
export function matchesPort(port: PolicyPort, packet: PolicyPacket, destination: PolicyPod | null): boolean {
  if (port.protocol !== packet.protocol) return false;
  if (port.kind === 'range') return port.first <= packet.port && packet.port <= port.last;
  return (destination?.ports ?? []).some(
    ({ name, protocol, port: number }) =>
      name === port.name && protocol === port.protocol && number === packet.port,
  );
}
