import type { IPFamily } from '../lib/address.ts';
import type { ProbeOrigin } from './probe-sockets.ts';

/** Addresses by family; a single-stack cluster has only one. */
export type Addresses = Readonly<Partial<Record<IPFamily, string>>>;

/** A server that the flows may reach: a pod with `fairlead echo` on ports 8080 and 8081. */
export interface Server {
  /** The pod's name, with which it answers. */
  readonly name: string;
  readonly node: string;
  readonly addresses: Addresses;
}

/** The origin of flows. */
export interface Place {
  /** As an argument of `explain`: "fairlead-check/client-1", "node/node-1", "outside". */
  readonly name: string;
  readonly kind: 'pod' | 'node' | 'outside';
  /** The node whose tables its packets pass first; for `outside`, the destination node. */
  readonly node: string;
  readonly addresses: Addresses;
}

/** A place on this machine. */
export interface LocalPlace extends Place, ProbeOrigin {}

/** The nodes, servers and clients of the check. */
export interface Fixture<P extends Place = Place> {
  readonly families: readonly IPFamily[];
  readonly servers: readonly Server[];
  readonly places: readonly P[];
  /** All addresses of each node, bridges included: the possible sources of a masqueraded packet. */
  readonly nodeAddresses: ReadonlyMap<string, ReadonlySet<string>>;
  /** The addresses in the Node object, on which its node ports answer. */
  readonly primary: ReadonlyMap<string, Addresses>;
  /** The node through which packets from outside to cluster IPs enter. */
  readonly entry: string;
  readonly configuration: FixtureConfiguration;
}

/** The part of the proxies' configuration that affects the expected outcome. */
export interface FixtureConfiguration {
  readonly masqueradeAll: boolean;
  /** The proxies recognize the cluster's pods. */
  readonly localDetection: boolean;
}
