import type { IPFamily } from '../lib/address.ts';
import type { Protocol } from '../service/model.ts';

/** A network namespace with its resolver. */
export type Place =
  /** A pod with its own network namespace. `name`: "namespace/name". */
  | { readonly kind: 'pod'; readonly node: string; readonly uid: string; readonly name: string }
  /** A pod with hostNetwork: it has the node's routes and sockets, and its own resolver. */
  | { readonly kind: 'host-pod'; readonly node: string; readonly uid: string; readonly name: string }
  | { readonly kind: 'node'; readonly node: string }
  /** A host on the nodes' link that is not a node: "outside", "control-plane". */
  | { readonly kind: 'host'; readonly name: string };

export type SocketProtocol = 'TCP' | 'UDP';

/** The path of a packet from the node that it enters next: only that node's agent has the forwarding table. */
export interface EntryRequest {
  readonly kind: 'entry';
  readonly node: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** A fact that is read in a network namespace. */
export type LocalFactRequest =
  | { readonly kind: 'sockets'; readonly place: Place; readonly protocol: SocketProtocol }
  | { readonly kind: 'route'; readonly place: Place; readonly destination: string }
  | { readonly kind: 'fault'; readonly place: Place }
  | { readonly kind: 'filters'; readonly place: Place }
  | {
      readonly kind: 'names';
      readonly place: Place;
      readonly name: string;
      /** Null: both. */
      readonly family: IPFamily | null;
    };

export type FactRequest = LocalFactRequest | EntryRequest;
