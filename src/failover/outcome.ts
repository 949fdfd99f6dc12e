import type { SocketAddress } from '../lib/address.ts';
import type { Protocol } from '../service/model.ts';

/**
 * The outcome of opening a connection to a Service's endpoint, observed by connection tracking, a BPF program or a proxy.
 * `reset`: the endpoint refused the connection (its port is closed). `timeout`: it did not answer for a few hundred
 * milliseconds. `success`: it answered.
 */
export interface Outcome {
  readonly kind: 'reset' | 'timeout' | 'success';
  readonly protocol: Protocol;
  /** The address, of the Service or the node, and port that the client connected to. */
  readonly destination: SocketAddress;
  readonly endpoint: SocketAddress;
  /** The client's address (not its port): different clients are different addresses. */
  readonly client: string;
}

/** A connection to an endpoint whose outcome is not known. */
export type PendingConnection = Omit<Outcome, 'kind'>;
