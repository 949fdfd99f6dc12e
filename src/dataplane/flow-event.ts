import type { SocketAddress } from '../lib/address.ts';
import type { Protocol } from '../service/model.ts';

/** The kinds of events of a flow through a Service. */
export const FLOW_EVENT_KINDS = [
  'chosen',
  'established',
  'timeout',
  'reset',
  'ejected',
  'recovered',
  'rerouted',
  'closed',
  'given-up',
  'unreachable',
  'denied',
  'rejected',
] as const;
export type FlowEventKind = (typeof FLOW_EVENT_KINDS)[number];

/** An event of a flow through a Service, from a BPF program, connection tracking or a proxy. */
export interface FlowEvent {
  /**
   * `chosen`: a client's datagrams go to this endpoint. `established`: a connection was answered after `micros`.
   * `timeout`, `reset`, `unreachable`: the endpoint did not answer a connection's first packet, refused it, or an ICMP error
   * said that it cannot be reached. `denied`: network policies allow the client no endpoint; this is one of them. `rejected`:
   * the Service's rules refuse the client. `rerouted`: the flow goes to this endpoint instead of the previous one. `closed`,
   * `given-up`: a connection ended `micros` after it began, or before it was answered. `ejected`: new connections avoid the
   * endpoint for `micros`. `recovered`: the endpoint's first answer after failures.
   */
  readonly kind: FlowEventKind;
  readonly protocol: Protocol;
  /** Addresses are canonical text. The port is 0 if the client was refused before it had one. */
  readonly client: SocketAddress;
  readonly service: SocketAddress;
  /** Null: `rejected`. */
  readonly endpoint: SocketAddress | null;
  /** The proxy's own address and port of its connection to the endpoint; null: there is no proxy. */
  readonly proxy: SocketAddress | null;
  readonly micros: number;
  /** Nanoseconds of the monotonic clock (`process.hrtime.bigint()`). */
  readonly at: bigint;
}

export type OnFlowEvent = (event: FlowEvent) => void;
