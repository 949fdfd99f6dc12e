import { FLOW_EVENT_KINDS, type FlowEventKind } from '../dataplane/flow-event.ts';
import type { SocketAddress } from '../lib/address.ts';
import { OUTCOMES, type OutcomeWord } from '../lib/outcomes.ts';

/**
 * `dropped`: the rules of a Service, or network policies, do not allow the connection. `aborted`: one end reset an
 * established connection. `stalled`: an established connection does not go on. `dns`: a name was looked up. The others: see FlowEvent.
 */
export const FLOW_LINE_KINDS = [...FLOW_EVENT_KINDS, 'dropped', 'aborted', 'stalled', 'dns'] as const;
export type FlowLineKind = (typeof FLOW_LINE_KINDS)[number];

/** How a flow ended. */
export const FLOW_VERDICTS = Object.keys(OUTCOMES) as readonly OutcomeWord[];
export type FlowVerdict = OutcomeWord;

/** An event of a connection or of datagrams. */
export interface FlowLine {
  readonly type: 'flow';
  /** When it happened: of an outcome, when it was known. ISO time, by the node's clock. */
  readonly time: string;
  readonly kind: Exclude<FlowLineKind, 'dns'>;
  /** Null: the event says nothing about it. */
  readonly verdict: FlowVerdict | null;
  readonly protocol: string;
  readonly client: SocketAddress;
  /** The address that the client has asked for; null: the endpoint itself. */
  readonly service: FlowService | null;
  /** Null: the packets were sent to no endpoint. */
  readonly endpoint: SocketAddress | null;
  /** The name for which the client got the endpoint's address, by a rule with names of its policies; absent: none. */
  readonly asked?: string;
  /** The proxy's own end of its connection to the endpoint (userspace mode); null: there is no proxy. */
  readonly proxy: SocketAddress | null;
  readonly micros: number;
  /** Why it failed; null: it did not fail, or the reason is not known. */
  readonly reason: string | null;
}

export interface FlowService extends SocketAddress {
  /** "namespace/name:port name"; null: no Service has this address now. */
  readonly name: string | null;
}

/** A lookup of a name, with all questions of its search path. */
export interface DnsLine {
  readonly type: 'dns';
  readonly time: string;
  readonly kind: 'dns';
  readonly verdict: FlowVerdict;
  readonly client: SocketAddress;
  readonly server: SocketAddress;
  readonly name: string;
  /** Record types: "A", "AAAA". */
  readonly types: readonly string[];
  readonly answers: readonly string[];
  /** "NOERROR", "NXDOMAIN"; null: no answer. */
  readonly rcode: string | null;
  /** Names of the search path that were asked for before. */
  readonly tried: readonly string[];
  readonly questions: number;
  readonly micros: number;
  /** Why no answer comes, as the tables of the node say; absent: an older program, null: no reason is known. */
  readonly reason?: string | null;
}

/** The flows that are not shown from now on, in words. */
export interface FlowNotice {
  readonly type: 'notice';
  readonly text: string;
}

export type FlowsEntry = FlowLine | DnsLine | FlowNotice;

const VERDICTS: Readonly<Record<FlowLine['kind'], FlowVerdict | null>> = {
  chosen: null,
  established: 'delivered',
  closed: null,
  recovered: 'delivered',
  ejected: null,
  rerouted: null,
  reset: 'rejected',
  rejected: 'rejected',
  timeout: 'no-answer',
  'given-up': 'no-answer',
  unreachable: 'unreachable',
  denied: 'dropped',
  dropped: 'dropped',
  aborted: 'reset',
  stalled: 'stalled',
};

/** Returns the verdict that an event shows. */
export const verdictOf = (kind: FlowEventKind | FlowLine['kind']): FlowVerdict | null => VERDICTS[kind];
