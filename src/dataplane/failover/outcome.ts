import type { Protocol } from '../../service/model.ts';

/**
 * How an attempt to connect to a Service's endpoint ended, whoever saw it: connection tracking, a BPF program, a
 * proxy that dialled.
 * `reset`: the endpoint refused the connection (its port is closed). `timeout`: it did not answer for a few hundred
 * milliseconds. `success`: it answered.
 */
export interface Outcome {
  readonly kind: 'reset' | 'timeout' | 'success';
  readonly protocol: Protocol;
  /** What the client connected to: the Service's address or the node's, and the port. */
  readonly destination: AddressAndPort;
  readonly endpoint: AddressAndPort;
  /** The client's address (not its port): different clients are different addresses. */
  readonly client: string;
}

/** `ip` is canonical text. */
export interface AddressAndPort {
  readonly ip: string;
  readonly port: number;
}
