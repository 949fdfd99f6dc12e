import type { LabelSelector } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import type { AddressRange } from '../nft/ranges.ts';
import type { NameGroup } from './name-group.ts';

export type Protocol = 'TCP' | 'UDP' | 'SCTP';
export type Direction = 'ingress' | 'egress';
export const DIRECTIONS: readonly Direction[] = ['ingress', 'egress'];

/** A named port of a container. */
export interface NamedPort {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** The parts of a pod that policies use. */
export interface PolicyPod {
  /** "namespace/name" */
  readonly key: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Its node. */
  readonly node: string;
  /** Canonical text. */
  readonly addresses: readonly string[];
  readonly ports: readonly NamedPort[];
}

/** Pods that a peer of a rule selects. Equal groups have the same id. */
export interface PodGroup {
  readonly id: string;
  readonly pods: LabelSelector;
  /** The name of a namespace, or a selector of namespaces. "" instead of a name: nodes, by their labels. */
  readonly namespaces: string | LabelSelector;
}

/** The addresses of an ipBlock without its exceptions. */
export interface AddressBlock {
  readonly family: IPFamily;
  readonly ranges: readonly AddressRange[];
  /** "10.0.0.0/8 except 10.1.0.0/16" */
  readonly text: string;
}

export type PolicyPeer =
  | { readonly kind: 'pods'; readonly group: PodGroup }
  | { readonly kind: 'block'; readonly block: AddressBlock }
  /** Only in rules for egress that accept: addresses that the node's DNS server gave the pod for one of the names. */
  | { readonly kind: 'names'; readonly group: NameGroup };

/** An address that the node's DNS server gave a pod for a name. */
export interface LearnedAddress {
  readonly name: string;
  /** Until when new flows to it are allowed, in milliseconds since 1970. */
  readonly until: number;
}

export type PolicyPort =
  | { readonly kind: 'range'; readonly protocol: Protocol; readonly first: number; readonly last: number }
  /** The port of this name of the pod that the packet is sent to. */
  | { readonly kind: 'name'; readonly protocol: Protocol; readonly name: string };

/** The order of evaluation: the first tier that decides about a packet ends it. */
export const TIERS = ['Admin', 'NetworkPolicy', 'Baseline'] as const;
export type Tier = (typeof TIERS)[number];

export type PolicyKind =
  | 'NetworkPolicy'
  | 'ClusterNetworkPolicy'
  | 'AdminNetworkPolicy'
  | 'BaselineAdminNetworkPolicy';

/** `Pass`: the next tier decides. A rule of a NetworkPolicy has the action `Accept`. */
export type PolicyAction = 'Accept' | 'Deny' | 'Pass';

/** Decides about packets between the selected pods and the peers. */
export interface PolicyRule {
  readonly action: PolicyAction;
  /** Null: any address. */
  readonly peers: readonly PolicyPeer[] | null;
  /** Null: any port of any protocol. */
  readonly ports: readonly PolicyPort[] | null;
  /** The field that it is read from, if that is not its place in the policy's list of rules. */
  readonly field?: string;
}

export interface Policy {
  /** "namespace/name" of a NetworkPolicy; "ClusterNetworkPolicy/name" of a policy of the whole cluster. */
  readonly key: string;
  readonly kind: PolicyKind;
  /** Empty for a policy of the whole cluster. */
  readonly namespace: string;
  readonly name: string;
  readonly tier: Tier;
  /** Within the tier, lower numbers come first; then the name decides. 0 for a NetworkPolicy. */
  readonly priority: number;
  /** The pods that it applies to. */
  readonly subject: PodGroup;
  /**
   * Null: the policy does not apply in this direction. A NetworkPolicy without rules denies all packets; a policy of the
   * whole cluster denies only by its rules.
   */
  readonly ingress: readonly PolicyRule[] | null;
  readonly egress: readonly PolicyRule[] | null;
  /** A hash of the whole policy. */
  readonly hash: string;
}

/** Returns "NetworkPolicy namespace/name" or "ClusterNetworkPolicy name" for the key of a policy. */
export function policyText(key: string): string {
  // Names of namespaces have no capital letters.
  const [, kind = '', name = ''] = /^([A-Z][A-Za-z]*)\/(.*)$/.exec(key) ?? [];
  return kind === '' ? `NetworkPolicy ${key}` : `${kind} ${name}`;
}

/** Compares policies by the order in which they are evaluated. */
export function comparePolicies(a: Policy, b: Policy): number {
  const tiers = TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier);
  return tiers || a.priority - b.priority || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
}

/** The state for decisions: the policies of a cluster and its pods. */
export interface PolicyMap {
  /** Returns the pod with this address. */
  podAt(address: string): PolicyPod | null;
  /** Returns the node with this address as a pod without a namespace, by which groups of nodes select it. */
  nodeAt(address: string): PolicyPod | null;
  /** Returns the NetworkPolicies of a namespace, by name. */
  policiesIn(namespace: string): readonly Policy[];
  /** Returns the policies of the whole cluster in the order of evaluation. */
  clusterPolicies(): readonly Policy[];
  /** Returns the labels of a namespace; null: the namespace is not known. */
  namespaceLabels(namespace: string): Readonly<Record<string, string>> | null;
  /** Returns what the DNS server of the pod's node gave the pod with this address (canonical) for a name of the group; null: nothing. */
  learned(pod: string, group: NameGroup, address: string): LearnedAddress | null;
}

/** Changes since the last commit: keys of pods and policies, which may have been deleted. */
export interface PolicyChange {
  readonly pods: ReadonlySet<string>;
  readonly policies: ReadonlySet<string>;
}

/** The part of a pod that one node has to program. */
export interface ProgrammedPod {
  /** Addresses that belong to it and not to a later pod. */
  readonly addresses: readonly string[];
  readonly pod: PolicyPod;
  /** Ids of the groups in use that contain it, each once. */
  readonly groups: readonly string[];
  /** Keys of the policies that isolate it, if it runs on this node; by name. */
  readonly isolatedBy: Readonly<Record<Direction, readonly string[]>>;
}
