import type { MissingRule } from '../kube/missing-rule.ts';
import type { TransportOptions } from '../kube/transport.ts';
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

/** Messages of the agent to the thread. */
export type ToAnnouncer =
  | { readonly kind: 'candidates'; readonly candidates: Candidates }
  /** The addresses of this machine's Node, and of API servers that the agent has learned. Sent every second: the agent is alive. */
  | { readonly kind: 'alive'; readonly addresses: readonly string[]; readonly servers: readonly string[] }
  | { readonly kind: 'close' };

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

type Answer = Parameters<NonNullable<TransportOptions['onAnswer']>>[0];
type Body = Parameters<NonNullable<TransportOptions['onBody']>>;

/** Messages of the thread to the agent. */
export type FromAnnouncer =
  /** The addresses that exist can be announced. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'announced'; readonly count: number }
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
