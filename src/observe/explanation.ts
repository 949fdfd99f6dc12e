import type { ExplainedRequest } from '../gateway/explain-request.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Protocol, SourceClass } from '../service/model.ts';
import type { FactRequest } from './fact-requests.ts';

/**
 * The claim of a step: the resolution of a name (`name`), the node that the packet enters (`entry`), the table entry or rule
 * that translates or refuses it (`rule`), its endpoints, the source that the server sees, the verdict of network policies,
 * the way to the next hop (`route`), and the outcome at the destination (`arrival`).
 */
export type StepSubject = 'name' | 'entry' | 'rule' | 'endpoints' | 'source' | 'policy' | 'route' | 'arrival';

export interface ExplainStep {
  readonly subject: StepSubject;
  /** The API object behind the step: "Service default/web", "Node node-1"; null if none. */
  readonly object: string | null;
  /** The kernel rule or map key, or the field, that decides it. */
  readonly ruleOrKey: string | null;
  readonly text: string;
  /** Of a rule: the addresses to one of which it may send the packet, an endpoint or a proxy's listener; absent: none. */
  readonly to?: readonly SocketAddress[];
  /** The question to a name server that the step describes; absent: it describes none. */
  readonly question?: {
    /** The full name in the question. */
    readonly name: string;
    /** The name server's address. */
    readonly server: string;
    /** The addresses that came back, an RCODE, or "no answer". */
    readonly result: string;
  };
}

/** The outcome at the destination address. */
export type Arrival =
  | 'answered'
  | 'refused'
  /** The kernel drops the packet, since the process does not accept the connections that wait. */
  | 'queue-full'
  /** No host on the link has the address: the sender gets an error when neighbour resolution fails. */
  | 'no-host'
  /** The client drops the replies, since their source is not the address that it uses. */
  | 'reply-lost'
  | 'unreachable'
  | 'denied'
  /** Dropped, or rejected, by a rule of another program. */
  | 'filtered'
  | 'filtered-rejected'
  /** Dropped until a node has the address of the egress gateway. */
  | 'waits'
  /** Dropped by a fault that a user has planted. */
  | 'fault'
  | 'unknown';

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
  /** "bridge of node-1" or "route to node-2 (192.168.0.2)". */
  readonly nextHop: string;
  readonly arrival: Arrival;
  /** The client address that the server sees; null if unknown. */
  readonly clientSeen: string | null;
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

/**
 * `delivered`: a process accepts it; `partial`: some endpoints accept it, others do not; `rejected`: a reset
 * or an ICMP error; `dropped`: no answer; `unreachable`: no route, or no host has the address; `unresolved`: no packet
 * is sent, since the name does not resolve; `unknown`: a fact that determines the outcome cannot be checked.
 */
export type ExplainVerdict =
  | 'delivered'
  | 'partial'
  | 'rejected'
  | 'dropped'
  | 'unreachable'
  | 'unresolved'
  | 'unknown';

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
  /** The client address that the server sees, if no Service is involved; null if unknown. */
  readonly clientSeen: string | null;
  readonly verdict: ExplainVerdict;
  readonly reason: string;
  readonly causes: readonly Cause[];
  /** Facts to collect; the explanation must then be computed again. */
  readonly missing: readonly FactRequest[];
  /** The node whose agent has the missing forwarding table; null if none is missing. */
  readonly askNode: string | null;
  /** Of a URL: what the gateway that has it does with the request; absent: no gateway has it. */
  readonly gateway?: ExplainedRequest;
}
