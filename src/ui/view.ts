import type { FlowVerdict } from '../flows/flow-line.ts';

/** The view of a cluster that the page gets: plain data, as JSON. */

/** `sent`: datagrams of a Service, whose answers are not observed. */
export type EdgeVerdict = FlowVerdict | 'sent';

export interface NodeView {
  readonly name: string;
  readonly isReady: boolean;
  readonly isDrained: boolean;
  readonly addresses: readonly string[];
  /** The proxy mode that the node's annotation asks for; null: that of the cluster. */
  readonly mode: string | null;
}

export interface EndpointView {
  /** "10.244.1.2", without a port; a pod has one of each IP family. */
  readonly addresses: readonly string[];
  /** "namespace/name"; null: not a pod. */
  readonly pod: string | null;
  readonly node: string | null;
  /** `terminating`: it still serves, and is used only if no other is ready. */
  readonly state: 'ready' | 'not-ready' | 'terminating';
}

export interface ServiceView {
  /** "namespace/name" */
  readonly name: string;
  readonly type: string;
  readonly addresses: readonly string[];
  /** Addresses from outside the cluster: load-balancer and external IPs. */
  readonly externalAddresses: readonly string[];
  /** "80/TCP", "80:30080/TCP" with a node port. */
  readonly ports: readonly string[];
  /** Ports of `ports`, by number, that answer HTTP without TLS, as far as their names and numbers say. */
  readonly httpPorts: readonly number[];
  readonly hasSelector: boolean;
  /** Each node answers for it itself, without endpoints: the cluster's DNS. */
  readonly isOnNodes: boolean;
  readonly endpoints: readonly EndpointView[];
}

export interface PodView {
  /** "namespace/name" */
  readonly name: string;
  readonly node: string | null;
  readonly addresses: readonly string[];
  readonly phase: string;
  readonly isReady: boolean;
  /** It shares the network of its node. */
  readonly isHostNetwork: boolean;
  /** Names of its containers, those for debugging too, but not those that only initialize it. */
  readonly containers: readonly string[];
}

/** Objects by name; null: the object was deleted. */
export interface ObjectChanges {
  readonly namespaces: Readonly<Record<string, true | null>>;
  readonly nodes: Readonly<Record<string, NodeView | null>>;
  readonly services: Readonly<Record<string, ServiceView | null>>;
  readonly pods: Readonly<Record<string, PodView | null>>;
}

/** The connections of one client through one Service to one endpoint with one outcome, within a tick. */
export interface EdgeView {
  /** "namespace/name" of a pod, "node/NAME", "pod ADDRESS" of a pod that is not known, "outside", or an address. */
  readonly client: string;
  /** "namespace/name"; null: the endpoint was addressed directly. */
  readonly service: string | null;
  /** Like `client`; null: the packets were sent to no endpoint. */
  readonly endpoint: string | null;
  readonly verdict: EdgeVerdict;
  readonly count: number;
  /** Mean milliseconds until the answer; null: not measured. */
  readonly latencyMs: number | null;
  /** Why it failed; null: it did not fail, or the reason is not known. */
  readonly reason: string | null;
}

/** The flows since the previous tick. */
export interface FlowTick {
  /** Length in seconds. */
  readonly seconds: number;
  readonly edges: readonly EdgeView[];
  /** All connections and lookups, also those that `edges` leaves out. */
  readonly total: number;
  readonly omittedEdges: number;
  /** Connections by Service, and those of them that failed, for Services of edges that were left out too. */
  readonly services: Readonly<Record<string, readonly [count: number, failed: number]>>;
}

/** The cluster itself. */
export interface ClusterView {
  readonly name: string;
  readonly mode: string;
  readonly ipFamily: string;
  /** The command as the user has typed it: "./fairlead"; with FAIRLEAD_CLUSTER for another cluster than the default one. */
  readonly command: string;
}

/** An event of the stream; `full` replaces all objects. */
export type PageEvent =
  | { readonly type: 'cluster'; readonly cluster: ClusterView }
  | { readonly type: 'objects'; readonly full: boolean; readonly changes: ObjectChanges }
  | { readonly type: 'tick'; readonly tick: FlowTick }
  /** Problems of nodes whose flows cannot be read, and samplings that have begun, in words; replaces the previous ones. */
  | { readonly type: 'notices'; readonly notices: readonly string[] };

/** An error as the page receives it. */
export interface Refusal {
  readonly message: string;
  readonly hint?: string;
}
