import type { KernelStep, Mode } from '../dataplane/dataplane.ts';
import type { EgressView } from '../egress/model.ts';
import type { EndpointSlice, Node, Pod, Service } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import type { PolicyMap } from '../policy/model.ts';
import type { Frontend, Packet, ServiceMap } from '../service/model.ts';
import type { Place } from './fact-requests.ts';
import type { Facts } from './facts.ts';

/** The origin of a flow. */
export interface Origin {
  readonly kind: 'pod' | 'node' | 'outside' | 'address';
  /** The name for messages: "pod default/client". */
  readonly label: string;
  readonly addresses: readonly string[];
  /** The node whose tables its packets pass; null: depends on the node through which they enter. */
  readonly node: string | null;
  readonly pod: Pod | null;
  /** Null: cannot be inspected. */
  readonly place: Place | null;
}

/** A host on the nodes' link that is not a node. */
export interface LinkHost {
  /** "outside", "control-plane". */
  readonly name: string;
  readonly addresses: readonly string[];
}

/** A question to `explain`. */
export interface ExplainRequest {
  readonly from: string;
  readonly to: string;
  /** Null: any family that both ends have. */
  readonly family: IPFamily | null;
  /** The node whose Service rules the packet enters. Default: by the routes of FROM. */
  readonly entry?: string | null;
}

/** The state that `explain` reads; functions, so that caches, an API client or a test's lists can provide it. */
export interface ExplainView {
  services(): Iterable<Service>;
  slices(): Iterable<EndpointSlice>;
  pods(): Iterable<Pod>;
  /** Returns the pod with a canonical address, or null; pods that have ended or use their node's address have none. */
  podAt(address: string): Pod | null;
  nodes(): Iterable<Node>;
  /** Returns the forwarding table of a node; null if it is unknown. */
  map(node: string): ServiceMap | null;
  /** Returns the proxy mode of a node; null if it is unknown. */
  mode(node: string): Mode | null;
  /** Returns `Dataplane.locate` of the node's active mode; empty if the mode is unknown. */
  locate(node: string, frontend: Frontend, packet: Packet): readonly KernelStep[];
  readonly facts: Facts;
  /** Every host on the nodes' link except the nodes themselves; empty: they are not known. */
  readonly hosts: readonly LinkHost[];
  /** Returns the network policies; null if they are not enforced. */
  policies?(): PolicyMap | null;
  /** Returns the annotation of a namespace that permits its pods additional sources. */
  permittedSources?(namespace: string): string | undefined;
  /** Whether a pod ("namespace/name") of this node has too many tracked connections, so that its new ones are dropped. */
  isHeld?(pod: string): boolean;
  /** Whether this node drops queries of a client to a name server, because it sends too many. */
  isLimited?(client: string, server: string): boolean;
  /** Returns what decides about packets of this node's pods to hosts outside; null: no egress gateway exists. */
  egress?(): EgressView | null;
  /** Returns the node through which packets to an address enter the cluster (its announcer); null if unknown. */
  entryNode?(address: string): string | null;
}
