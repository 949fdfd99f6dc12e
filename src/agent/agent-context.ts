import type { Registry } from 'prom-client';
import type { Client } from '../kube/client.ts';
import type { EventType } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import type { MissingRule } from '../kube/missing-rule.ts';
import type { TransportOptions } from '../kube/transport.ts';
import type { KubeObject, Node, Pod, Resource } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import type { MissingRules } from './missing-rules.ts';
import type { MachinePulls } from './pod-runtime/machine-pulls.ts';
import type { RuntimeProgram } from './pod-runtime/runtime-process.ts';

export interface AgentOptions {
  readonly runtimeProgram: RuntimeProgram;
  /** How the nodes of a local cluster pull images; null: through the node's network. */
  readonly pulls: MachinePulls | null;
  readonly version: string;
  /** The command line's flags by name, for /flagz. */
  readonly flags: Readonly<Record<string, string>>;
  /** Programs Services even if kube-proxy runs on this node, and keeps its rules. */
  readonly beside: boolean;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** See InformerOptions. */
export interface FollowOptions<T> {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly transform?: (object: T) => T;
  readonly optional?: boolean;
  /** Called in addition to `missingRules`, see InformerOptions. */
  readonly onMissingRule?: (rule: MissingRule | null) => void;
  /** The name under which the objects are kept in a file, for a start without the API server; absent: they are not. */
  readonly cacheAs?: string;
}

/** The context that all parts of an agent share. */
export interface AgentContext extends AgentOptions {
  /** Milliseconds of the clock. */
  readonly startedAt: number;
  readonly configuration: AgentConfiguration;
  /** Whether connection tracking had no entries when the agent started. */
  readonly startsUntracked: boolean;
  readonly client: Client;
  /** The client with the right to the Leases of announced addresses, which a node's identity does not have. */
  readonly announcer: Client;
  readonly userAgent: string;
  /** Counts requests to the API server. */
  readonly requests: Required<Pick<TransportOptions, 'onAnswer' | 'onBody'>>;
  /** The metrics of /metrics. */
  readonly registry: Registry;
  follow<T extends KubeObject>(resource: Resource<T>, options?: FollowOptions<T>): Informer<T>;
  /** Rights that the API server refuses this agent; informers of `follow` report it themselves. */
  readonly missingRules: MissingRules;
  /** Records an event of this machine's Node. */
  nodeEvent(type: EventType, reason: string, message: string): void;
  /** Records an event of a pod. */
  podEvent(pod: Pod, type: EventType, reason: string, message: string): void;
  /** Called when the agent closes, the latest first. */
  onClose(close: () => Promise<void> | void): void;
}

/** Returns the addresses by which the cluster knows a node, primary first; external ones if it has no others. */
export function addressesOf(node: Node): string[] {
  const all = node.status?.addresses ?? [];
  const internal = all.filter((one) => one.type === 'InternalIP');
  return (internal.length > 0 ? internal : all.filter((one) => one.type === 'ExternalIP')).map(
    (one) => one.address,
  );
}
