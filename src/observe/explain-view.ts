import type { KernelStep, Mode } from '../dataplane/dataplane.ts';
import type { EndpointSlice, Node, Pod, Service } from '../kube/types.ts';
import type { PolicyMap } from '../policy/model.ts';
import type { Frontend, Packet, Protocol, ServiceMap, SourceClass } from '../service/model.ts';

/** The origin of a flow. */
export interface Origin {
  readonly kind: 'pod' | 'node' | 'outside' | 'address';
  /** The name for messages: "pod default/client". */
  readonly label: string;
  readonly addresses: readonly string[];
  /** The node whose tables its packets pass; null: it depends on the node where they enter. */
  readonly node: string | null;
  readonly pod: Pod | null;
}

/** The state that `explain` reads; functions, so that caches, an API client or a test's lists can provide it. */
export interface ExplainView {
  services(): Iterable<Service>;
  slices(): Iterable<EndpointSlice>;
  pods(): Iterable<Pod>;
  nodes(): Iterable<Node>;
  /** The forwarding table of a node, or null if it is unknown. */
  map(node: string): ServiceMap | null;
  /** The proxy mode of a node, or null if it is unknown. */
  mode(node: string): Mode | null;
  /** `Dataplane.locate` of the node's active mode; empty if the mode is unknown. */
  locate(node: string, frontend: Frontend, packet: Packet): readonly KernelStep[];
  /** Resolves a name as the origin of the flow does, with its search path; empty: no such name. */
  lookup(name: string, origin: Origin): Promise<readonly string[]> | readonly string[];
  readonly outsideAddresses: readonly string[];
  /** The state of network policies; null: they are not enforced. */
  policies?(): PolicyMap | null;
  /** The node through which packets to an address enter the cluster (its announcer); null: unknown. */
  entryNode?(address: string): string | null;
}

export interface ExplainStep {
  /** The API object behind the step: "Service default/web", "Node node-1"; null: none. */
  readonly object: string | null;
  /** The kernel rule or map key, or the field, that decides it. */
  readonly ruleOrKey: string | null;
  readonly text: string;
}

export interface ExplainedEndpoint {
  readonly address: string;
  readonly port: number;
  readonly pod: string | null;
  readonly node: string | null;
  /** 0 to 1. */
  readonly odds: number;
  readonly terminating: boolean;
  /** The server sees the node's address instead of the client's. */
  readonly masquerade: boolean;
  readonly hairpin: boolean;
  /** "bridge of this node" or "route to node-2 (192.168.0.2)". */
  readonly nextHop: string;
}

/** The reason why a flow fails, and the fix. The most likely comes first. */
export interface Cause {
  readonly text: string;
  /** "Service default/web". */
  readonly object: string | null;
  /** "spec.selector". */
  readonly field: string | null;
  readonly fix: string | null;
}

export interface Explanation {
  readonly from: string;
  readonly to: string;
  /** Null if no packet is sent: the name does not resolve, or the Service has no address. */
  readonly packet: {
    readonly source: string;
    readonly sourceClass: SourceClass;
    readonly destination: string;
    readonly port: number;
    readonly protocol: Protocol;
    readonly node: string | null;
  } | null;
  readonly steps: readonly ExplainStep[];
  readonly endpoints: readonly ExplainedEndpoint[];
  /** `delivered`: handed to an endpoint or, without a Service, to the address itself. */
  readonly verdict: 'delivered' | 'rejected' | 'dropped' | 'unresolved' | 'unknown';
  readonly reason: string;
  readonly causes: readonly Cause[];
}
