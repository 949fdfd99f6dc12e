import type { Protocol } from '../service/model.ts';
import type { SocketAddress } from './dataplane.ts';

/** What may happen to a flow through a Service; bpf/events.h, enum event_kind, has the same ones in this order. */
export const FLOW_EVENT_KINDS = [
  'chosen',
  'established',
  'timeout',
  'reset',
  'suspected',
  'recovered',
  'rescued',
  'closed',
  'given-up',
  'unreachable',
] as const;
export type FlowEventKind = (typeof FLOW_EVENT_KINDS)[number];

/** What was seen of a flow through a Service, whoever saw it: a BPF program, connection tracking, a proxy. */
export interface FlowEvent {
  /**
   * `chosen`: a client's datagrams go to this endpoint; `established`: a connection was answered after `micros`;
   * `timeout`, `reset`, `unreachable`: the endpoint did not answer a connection's first packet, refused it, or the
   * network said that it cannot be reached; `rescued`: the flow goes to this endpoint instead of the one before;
   * `closed`, `given-up`: a connection ended `micros` after it was begun, or before it was answered. About the
   * endpoint: `suspected`: new connections are kept away from it for `micros`; `recovered`: it has answered, the first
   * time since it failed somebody.
   */
  readonly kind: FlowEventKind;
  readonly protocol: Protocol;
  /** Addresses are canonical text. */
  readonly client: SocketAddress;
  readonly service: SocketAddress;
  readonly endpoint: SocketAddress;
  readonly micros: number;
  /** Nanoseconds of the monotonic clock (`process.hrtime.bigint()`). */
  readonly at: bigint;
}

export type OnFlowEvent = (event: FlowEvent) => void;
