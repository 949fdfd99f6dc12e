import type { Cidr, IPFamily } from '../lib/address.ts';

export type Protocol = 'TCP' | 'UDP' | 'SCTP';

/**
 * Where a packet to a Service comes from: besides the destination, the source ranges and the affinity, a
 * forwarding decision depends only on this. `pod`: local traffic by the configured detection; `node`: this
 * node's own processes; `external`: anything else.
 */
export type SourceClass = 'pod' | 'node' | 'external';

export const SOURCE_CLASSES: readonly SourceClass[] = ['pod', 'node', 'external'];

export type FrontendKind = 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalIP';

/** Identifies a service port. */
export interface PortRef {
  readonly namespace: string;
  readonly name: string;
  /** Empty for an unnamed port. */
  readonly portName: string;
  readonly protocol: Protocol;
}

/** A backend of a pool. Text is canonical; equal endpoints are equal in every field. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
  /** The endpoint runs on the node that this map is for. */
  readonly local: boolean;
  /** The endpoint is terminating but still serving; used because no better one exists. */
  readonly terminating: boolean;
  readonly nodeName: string | null;
  /** "namespace/pod" if the slice names a pod; only for display and flows. */
  readonly target: string | null;
}

/**
 * The endpoints that a route balances over: never empty (an empty choice is a `reject` or `drop` route),
 * free of duplicates, ordered by address then port. Routes of one map with the same endpoints share the
 * same Pool object; `id` is unique in the map and stable while the service port exists.
 */
export interface Pool {
  /** "namespace/name:portName/protocol/family/scope" where scope is "cluster" or "local". */
  readonly id: string;
  readonly endpoints: readonly Endpoint[];
  /** Endpoints that would serve too but are ejected because they failed recently; absent: none. */
  readonly ejected?: readonly Endpoint[];
  /**
   * UDP: endpoints that still serve but get no new flows (they terminate, or hints and policies exclude
   * them): their flows stay, as with kube-proxy; absent: none.
   */
  readonly spared?: readonly Endpoint[];
}

export type Route =
  | { readonly action: 'forward'; readonly pool: Pool; readonly masquerade: boolean }
  /** Answers with a TCP reset or ICMP port unreachable. `reason` names the cause for `explain`. */
  | { readonly action: 'reject'; readonly reason: NoRouteReason }
  | { readonly action: 'drop'; readonly reason: NoRouteReason };

export type NoRouteReason = 'no-endpoints' | 'no-local-endpoints';

/** Unique in a map: "ipv4/10.96.0.1/TCP/443", and for node ports "ipv4/nodeport/TCP/30080". */
export type FrontendKey = string;

/** One virtual address and port, and the routes of packets to it. */
export interface Frontend {
  readonly key: FrontendKey;
  readonly kind: FrontendKind;
  readonly family: IPFamily;
  /** Canonical; null for a NodePort, which matches on `NodeView.nodePortAddresses`. */
  readonly address: string | null;
  readonly port: number;
  readonly protocol: Protocol;
  readonly owner: PortRef;
  /**
   * By class of source. In addition, hairpin connections (an endpoint that reaches itself) are always
   * masqueraded.
   */
  readonly routes: Readonly<Record<SourceClass, Route>>;
  /** ClientIP affinity: seconds since a client's last new connection, or null without affinity. */
  readonly affinitySeconds: number | null;
  /**
   * LoadBalancer frontends with source ranges: only these sources are allowed, whatever their class,
   * checked before any translation; other packets are dropped. Null: all clients are allowed. Empty: none,
   * because all of the Service's ranges of this family are invalid.
   */
  readonly allowedSources: readonly Cidr[] | null;
  readonly options: ServiceOptions;
}

/** Options that a Service sets through Fairlead's annotations. */
export interface ServiceOptions {
  /** `fairlead.dev/ipvs-scheduler`; null: the node's default. */
  readonly ipvsScheduler: string | null;
  /** `fairlead.dev/balance` (eBPF mode): random, least-connections of two, or consistent hashing. */
  readonly balance: 'random' | 'least-connections' | 'maglev';
  /** `fairlead.dev/failover: disabled` turns ejection off. */
  readonly failover: boolean;
}

/** A `healthCheckNodePort` to serve. */
export interface HealthCheck {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
  /**
   * Number of distinct local ready endpoint addresses, of the family that has more: a dual-stack pod counts
   * once.
   */
  readonly localEndpoints: number;
}

/** How packets of this cluster's pods are recognized, per family if it depends on addresses. */
export type LocalDetection =
  | { readonly mode: 'ClusterCIDR' | 'NodeCIDR'; readonly ipv4: Cidr | null; readonly ipv6: Cidr | null }
  | { readonly mode: 'BridgeInterface'; readonly interface: string }
  | { readonly mode: 'InterfaceNamePrefix'; readonly prefix: string };

/**
 * Addresses on which node ports answer, for one family: all local addresses, or those inside these
 * networks.
 */
export type NodePortAddresses =
  | { readonly all: true }
  | { readonly all: false; readonly cidrs: readonly Cidr[] };

/** The properties of this node and its configuration that forwarding depends on. */
export interface NodeView {
  readonly name: string;
  /** `topology.kubernetes.io/zone`. */
  readonly zone: string | null;
  /** Primary address per family; null where the node has none. */
  readonly ipv4: string | null;
  readonly ipv6: string | null;
  readonly nodePortAddresses: Readonly<Record<IPFamily, NodePortAddresses>>;
  /** Node ports answer on loopback addresses too (all modes, both families). */
  readonly localhostNodePorts: boolean;
  readonly localDetection: LocalDetection;
  /** All traffic to cluster IPs is masqueraded. */
  readonly masqueradeAll: boolean;
  /** From ServiceCIDR objects or configuration: an unallocated address inside is dropped. */
  readonly serviceCidrs: readonly Cidr[];
  /**
   * Addresses inside the service networks that this node itself answers (its DNS). Every mode leaves them
   * alone: they have no frontends, and the guard rails pass them.
   */
  readonly ownServiceAddresses: readonly string[];
  /** Bit of the packet mark that means "masquerade", 0 to 31; upstream's default is 14. */
  readonly masqueradeBit: number;
  /** Scheduler of the IPVS mode for Services that do not name one. */
  readonly ipvsScheduler: string;
}

/** A problem in an API object; it never affects other objects. */
export interface Finding {
  readonly severity: 'warning' | 'error';
  /** A CamelCase reason for an Event: "FrontendConflict", "InvalidEndpointAddress". */
  readonly reason: string;
  /** The object that has the problem and gets the Event. */
  readonly object: {
    readonly kind: 'Service' | 'EndpointSlice';
    readonly namespace: string;
    readonly name: string;
  };
  /** A sentence that names the field and the fix. */
  readonly message: string;
}

/**
 * The forwarding table of one node, rendered by every mode and interpreted by `decide`.
 *
 * Frontends, routes, pools and endpoints are immutable, and unchanged ones keep their identity from one map
 * to the next. The containers of a map that a `ServiceTable` committed are views of the table (copying them
 * would make the cost of every commit proportional to the size of the cluster): such a map is valid until
 * the table's next commit. The maps of `compile` and `snapshot` never change.
 */
export interface ServiceMap {
  readonly node: NodeView;
  readonly frontends: ReadonlyMap<FrontendKey, Frontend>;
  /** By "namespace/name". */
  readonly healthChecks: ReadonlyMap<string, HealthCheck>;
  /** Every cluster IP in use → "namespace/name"; a wrong port on one of them is rejected. */
  readonly clusterIPs: ReadonlyMap<string, string>;
  /**
   * Addresses of endpoints whose connections to themselves need masquerading here: endpoints on this node,
   * endpoints that name no node and therefore may be on it, and endpoints of other nodes that are reached
   * through node ports, load balancer addresses or external IPs of external policy Local (pods keep their
   * address there, including pods of other nodes). Cluster IPs are handled on the pod's own node.
   */
  readonly hairpinAddresses: ReadonlySet<string>;
  readonly findings: readonly Finding[];
}

/** The difference of two maps, in the order in which it must be applied. */
export interface Change {
  /** Null if the node view is the same object. */
  readonly node: { readonly before: NodeView | null; readonly after: NodeView } | null;
  /** Additions and changes first, then removals. */
  readonly frontends: readonly FrontendChange[];
  readonly clusterIPs: { readonly added: readonly string[]; readonly removed: readonly string[] };
  readonly hairpinAddresses: { readonly added: readonly string[]; readonly removed: readonly string[] };
  readonly healthChecks: readonly {
    readonly key: string;
    readonly before: HealthCheck | null;
    readonly after: HealthCheck | null;
  }[];
}

export interface FrontendChange {
  readonly key: FrontendKey;
  /** Null: the frontend is new. */
  readonly before: Frontend | null;
  /** Null: the frontend was removed. Never null together with `before`. */
  readonly after: Frontend | null;
}

/** A packet that opens a flow, the input of `decide`. */
export interface Packet {
  readonly source: string;
  readonly sourcePort?: number;
  readonly sourceClass: SourceClass;
  readonly destination: string;
  /**
   * The destination is an address of this node, so node ports may match. Default: true for the node's
   * primary addresses and for loopback.
   */
  readonly destinationIsLocal?: boolean;
  readonly port: number;
  readonly protocol: Protocol;
}
