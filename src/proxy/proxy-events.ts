import type { Drift } from '../dataplane/dataplane.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import { type Node, RESOURCES, type Service } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Finding, HealthCheck, ServiceMap } from '../service/model.ts';

export interface ProxyEventsOptions {
  readonly nodeName: string;
  readonly services: Informer<Service>;
  readonly events: EventRecorder;
  readonly logger: Logger;
}

/** Reports problems of a Service or the node as events, and in the log. */
export interface ProxyEvents {
  /** Fields of objects that are ignored or corrected. */
  findings(findings: readonly Finding[]): void;
  /** Frontends that the node's mode cannot program. */
  refused(refused: readonly { readonly key: string; readonly error: Error }[], map: ServiceMap): void;
  /** Another program changed the rules, which are repaired. */
  drifted(node: Node, drifts: readonly Drift[]): void;
  healthCheckFailed(check: HealthCheck, error: unknown): void;
}

export function createProxyEvents({ nodeName, services, events, logger }: ProxyEventsOptions): ProxyEvents {
  function warn(service: Service | null | undefined, reason: string, message: string): void {
    if (service) events.event(service, 'Warning', reason, message, RESOURCES.services);
  }
  return {
    findings(findings) {
      for (const { object, severity, reason, message } of findings) {
        const key = `${object.namespace}/${object.name}`;
        logger.warn({ object: `${object.kind} ${key}`, reason }, message);
        const service = object.kind === 'Service' ? services.get(key) : undefined;
        const type = severity === 'error' ? 'Warning' : 'Normal';
        if (service) events.event(service, type, reason, message, RESOURCES.services);
      }
    },
    refused(refused, map) {
      for (const { key, error } of refused) {
        const owner = map.frontends.get(key)?.owner;
        const hint = error instanceof FairleadError && error.hint ? ` (${error.hint})` : '';
        const message = `node ${nodeName} cannot program ${key}: ${error.message}${hint}`;
        warn(owner && services.get(`${owner.namespace}/${owner.name}`), 'NotProgrammed', message);
      }
    },
    drifted(node, drifts) {
      const [first] = drifts;
      const message = `repairing ${drifts.length} differences in the kernel's rules; the first: ${first?.object} is ${first?.kind}`;
      events.event(node, 'Warning', 'ServiceRulesChanged', message, RESOURCES.nodes);
    },
    healthCheckFailed({ namespace, name, port }, error) {
      const message = `node ${nodeName} cannot serve healthCheckNodePort ${port}: ${messageOf(error)}`;
      warn(services.get(`${namespace}/${name}`), 'FailedToStartServiceHealthcheck', message);
    },
  };
}
