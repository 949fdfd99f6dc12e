import type { NetnsRef } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';

/** Addresses by family; a cluster of one family has only that one. */
export type Addresses = Readonly<Partial<Record<IPFamily, string>>>;

/** A server that the flows may reach: a pod with `fairlead echo` on ports 8080 and 8081. */
export interface Server {
  /** The pod's name, which is what it answers with. */
  readonly name: string;
  readonly node: string;
  readonly addresses: Addresses;
}

/** Where flows start. */
export interface Place {
  /** As `explain` takes it: "fairlead-check/client-1", "node/node-1", "outside". */
  readonly name: string;
  readonly kind: 'pod' | 'node' | 'outside';
  /** The node whose tables its packets meet first; for `outside`, of the node that it sends to. */
  readonly node: string;
  readonly netns: NetnsRef;
  /** The control group that its processes are in, which some modes tell them by; null: none of a node's. */
  readonly controlGroup: string | null;
  readonly addresses: Addresses;
}

/** What the flows are sent through and to. */
export interface Layout {
  readonly families: readonly IPFamily[];
  readonly servers: readonly Server[];
  readonly places: readonly Place[];
  /** Every address of each node, bridges included: what a masqueraded packet may come from. */
  readonly nodeAddresses: ReadonlyMap<string, ReadonlySet<string>>;
  /** What the node's own resource says: where its node ports answer. */
  readonly primary: ReadonlyMap<string, Addresses>;
  /** The node by which packets from outside to cluster IPs enter. */
  readonly entry: string;
  readonly configuration: LayoutConfiguration;
}

/** The part of the proxies' configuration that changes what must happen. */
export interface LayoutConfiguration {
  readonly masqueradeAll: boolean;
  /** The proxies can tell the cluster's pods from clients outside. */
  readonly localDetection: boolean;
}
