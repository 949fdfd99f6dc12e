import type { LabelSelector } from '../kube/types.ts';
import type { Cidr } from '../lib/address.ts';

/** An EgressGateway, as it was read. */
export interface Gateway {
  readonly name: string;
  /** Of two that include a packet, the older one decides; of the same age, the first by name. */
  readonly createdAt: string;
  readonly namespaceSelector: LabelSelector;
  readonly podSelector: LabelSelector;
  readonly nodeSelector: LabelSelector;
  /** Null: every address outside the cluster. */
  readonly destinations: readonly Cidr[] | null;
  readonly except: readonly Cidr[];
  readonly addresses: readonly string[];
}

/** A pod with a network of its own. */
export interface EgressPod {
  /** "namespace/name" */
  readonly key: string;
  readonly namespace: string;
  readonly node: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly addresses: readonly string[];
}

/** A gateway with what it selects. */
export interface SelectingGateway {
  readonly name: string;
  readonly destinations: readonly Cidr[] | null;
  readonly except: readonly Cidr[];
  /** By address of a pod: the address with which its connections leave; null: the gateway has none of this family. */
  readonly sources: ReadonlyMap<string, string | null>;
}

/** What decides about packets of pods to hosts outside. */
export interface EgressView {
  /** In the order of precedence. */
  readonly gateways: readonly SelectingGateway[];
  /** Networks of pods and Services, and addresses of nodes. */
  readonly cluster: readonly Cidr[];
  /** By address: the node that has it. */
  readonly holders: ReadonlyMap<string, string>;
}

/** A packet of a pod's connection, from the pod's address to its destination behind Services. */
export interface EgressPacket {
  readonly source: string;
  readonly destination: string;
}

export type EgressDecision =
  /** No gateway is concerned: the packet is routed and masqueraded as without gateways. */
  | { readonly kind: 'stays'; readonly because: 'not selected' | 'in the cluster' | 'other destination' }
  | {
      readonly kind: 'leaves';
      readonly gateway: string;
      readonly node: string;
      readonly address: string;
    }
  /** The packet is dropped until a node has the address; without an address, until the gateway gets one of the family. */
  | { readonly kind: 'waits'; readonly gateway: string; readonly address: string | null };
