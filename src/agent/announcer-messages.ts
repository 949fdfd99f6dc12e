import type { MissingRule } from '../kube/missing-rule.ts';
import type { TransportOptions } from '../kube/transport.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Candidates } from '../loadbalancer/candidates.ts';
import type { AgentConfiguration } from './agent-configuration.ts';

type ServerSettings = Pick<AgentConfiguration, 'kubeconfig' | 'server' | 'servers'>;

/** The settings of a thread that announces load-balancer addresses. */
export interface AnnouncerSettings extends ServerSettings {
  readonly node: string;
  /** The interface on which addresses are announced; null: the one with the node's address. */
  readonly interface: string | null;
  readonly leaseDurationMs: number;
  readonly userAgent: string;
  /** Whether nothing else of the agent uses these credentials, and so reports when no server answers. */
  readonly logsContact: boolean;
}

/** The state of egress gateways that the thread needs. */
export interface EgressSettings {
  /** The addresses of all gateways, each with its number. */
  readonly addresses: readonly (readonly [address: string, number: number])[];
  /** By node and family: the next hop of packets to it. */
  readonly hops: Readonly<Record<string, Partial<Record<IPFamily, string>>>>;
  /** The name of the tunnel; null: the nodes are on one link. */
  readonly tunnel: string | null;
  /** The name of the pods' bridge. */
  readonly bridge: string;
}

/** Messages of the agent to the thread. */
export type ToAnnouncer =
  | { readonly kind: 'candidates'; readonly candidates: Candidates }
  /** The addresses of this machine's Node, and of API servers that the agent has learned. Sent every second: the agent is alive. */
  | { readonly kind: 'alive'; readonly addresses: readonly string[]; readonly servers: readonly string[] }
  /** Null: there is no gateway. */
  | { readonly kind: 'egress'; readonly settings: EgressSettings | null }
  | { readonly kind: 'close' };

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

type Answer = Parameters<NonNullable<TransportOptions['onAnswer']>>[0];
type Body = Parameters<NonNullable<TransportOptions['onBody']>>;

/** Messages of the thread to the agent. */
export type FromAnnouncer =
  /** The addresses that exist can be announced. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'announced'; readonly count: number }
  /** The nodes that have the addresses of egress gateways, by address. */
  | { readonly kind: 'holders'; readonly holders: readonly (readonly [address: string, node: string])[] }
  /** This node has an address of an egress gateway from now on; `before`: the node that had it, or empty. */
  | { readonly kind: 'egress-started'; readonly address: string; readonly before: string }
  /** An event of these Services ("namespace/name"). */
  | {
      readonly kind: 'event';
      readonly services: readonly string[];
      readonly type: 'Normal' | 'Warning';
      readonly reason: string;
      readonly message: string;
    }
  | { readonly kind: 'log'; readonly level: LogLevel; readonly fields: object; readonly message: string }
  | { readonly kind: 'missing-rule'; readonly rule: MissingRule | null }
  /** For the metrics of requests. */
  | { readonly kind: 'answer'; readonly answer: Answer }
  | { readonly kind: 'body'; readonly body: Body }
  | { readonly kind: 'closed' };
