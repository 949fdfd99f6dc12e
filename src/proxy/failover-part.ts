import type { Mode } from '../dataplane/dataplane.ts';
import { type FailoverOptions, type FailoverVerdict, startFailover } from '../failover/failover.ts';
import type { Outcome } from '../failover/outcome.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import { RESOURCES, type Service } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { Change, ServiceMap } from '../service/model.ts';
import type { ServiceTable } from '../service/service-table.ts';
import type { ProxyMetrics } from './proxy-metrics.ts';
import type { ServiceConnections } from './service-connections.ts';

export interface FailoverPartOptions {
  readonly nodeName: string;
  readonly families: readonly IPFamily[];
  readonly clock: Clock;
  readonly logger: Logger;
  readonly table: ServiceTable;
  readonly services: Informer<Service>;
  readonly events: EventRecorder;
  readonly metrics: ProxyMetrics;
  readonly connections: ServiceConnections;
  readonly mode: () => Mode;
  readonly map: () => ServiceMap | null;
  readonly mayBeDenied?: FailoverOptions['mayBeDenied'];
  readonly shortTimers: NonNullable<FailoverOptions['shortTimers']>;
  /** Called after a change of the table that clients are waiting for. */
  readonly program: () => void;
}

export interface FailoverPart {
  /** Reports an outcome that the mode itself observed. */
  report(outcome: Outcome): void;
  /** Must be called after a change was programmed. */
  follow(change: Change): void;
  close(): void;
}

/** Ejects endpoints that do not answer, with events on their Services and metrics. */
export function startFailoverPart(options: FailoverPartOptions): FailoverPart {
  const { nodeName, families, clock, logger, table, services, events, metrics, mode, map, program } = options;
  return startFailover({
    families,
    clock,
    logger,
    map,
    shortTimers: options.shortTimers,
    ...(options.mayBeDenied ? { mayBeDenied: options.mayBeDenied } : {}),
    // Flows of the userspace mode go to its own listeners; the mode reports outcomes itself.
    tracked: () => mode() !== 'userspace',
    onEjected(endpoints) {
      metrics.ejectedNow(endpoints.size);
      table.setEjected(endpoints);
      program();
    },
    onVerdict(verdict) {
      metrics.endpointVerdict(verdict.kind, verdict.cause);
      const { namespace, name } = verdict.owner;
      const service = services.get(`${namespace}/${name}`);
      if (!service) return;
      const type = verdict.kind === 'ejected' ? 'Warning' : 'Normal';
      const reason = verdict.kind === 'ejected' ? 'EndpointEjected' : 'EndpointReturned';
      events.event(service, type, reason, sentence(nodeName, verdict), RESOURCES.services);
    },
    onBegun: (event, weight) => options.connections.count(event, weight),
    onUnanswered: (count) => metrics.unanswered(count),
    onOverrun: () => metrics.pendingEventsLost(),
  });
}

function sentence(nodeName: string, verdict: FailoverVerdict): string {
  const { endpoint } = verdict;
  if (verdict.kind === 'ejected') {
    const what = verdict.cause === 'reset' ? 'refuses connections' : 'does not answer';
    return `endpoint ${endpoint} ${what}: node ${nodeName} sends no new connections to it for ${verdict.forMs / 1000} s`;
  }
  return verdict.cause === 'answered'
    ? `endpoint ${endpoint} answers again: node ${nodeName} uses it again`
    : `endpoint ${endpoint} has not answered for a long time: node ${nodeName} tests it with the next connection`;
}
