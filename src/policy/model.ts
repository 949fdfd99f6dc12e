import type { LabelSelector } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import type { AddressRange } from '../nft/ranges.ts';

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
  /** The name of a namespace, or a selector of namespaces. */
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
  | { readonly kind: 'block'; readonly block: AddressBlock };

export type PolicyPort =
  | { readonly kind: 'range'; readonly protocol: Protocol; readonly first: number; readonly last: number }
  /** The port of this name of the pod that the packet is sent to. */
  | { readonly kind: 'name'; readonly protocol: Protocol; readonly name: string };

/** Allows packets between the selected pods and the peers. */
export interface PolicyRule {
  /** Null: any address. */
  readonly peers: readonly PolicyPeer[] | null;
  /** Null: any port of any protocol. */
  readonly ports: readonly PolicyPort[] | null;
}

export interface Policy {
  /** "namespace/name" */
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  /** Selects the pods in its namespace that it isolates. */
  readonly selector: LabelSelector;
  /** Null: the policy does not isolate the pods in this direction. */
  readonly ingress: readonly PolicyRule[] | null;
  readonly egress: readonly PolicyRule[] | null;
  /** A hash of the whole policy. */
  readonly hash: string;
}

/** The state for decisions: the policies of a cluster and its pods. */
export interface PolicyMap {
  /** Returns the pod with this address. */
  podAt(address: string): PolicyPod | null;
  /** Returns the policies of a namespace, by name. */
  policiesIn(namespace: string): readonly Policy[];
  /** Returns the labels of a namespace; null: the namespace is not known. */
  namespaceLabels(namespace: string): Readonly<Record<string, string>> | null;
}
