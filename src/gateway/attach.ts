import { createBackendSet } from './backends.ts';
import { createFindings, type GatewayFinding } from './findings.ts';
import { compareText } from './identity.ts';
import { ingressPlans } from './ingress.ts';
import type { GatewayObjects } from './objects.ts';
import type { RouteMap } from './route-map.ts';
import { indexServices } from './service-index.ts';

/** The status that an object should have. */
export interface ObjectStatus {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  /** Without `addresses`, and conditions without `lastTransitionTime`: the writer adds both. */
  readonly status: Readonly<Record<string, unknown>>;
}

export interface Attached {
  readonly routeMap: RouteMap;
  readonly statuses: readonly ObjectStatus[];
  readonly findings: readonly GatewayFinding[];
}

/** Computes what the gateways of a cluster do, and what the API says about each object. */
export function attach(objects: GatewayObjects): Attached {
  const services = indexServices(objects.services);
  const backends = createBackendSet();
  const findings = createFindings();
  const gateways = [...ingressPlans(objects, { services, backends, findings })];
  gateways.sort((a, b) => compareText(a.key, b.key));
  return {
    routeMap: { gateways, backends: backends.result() },
    statuses: [],
    findings: findings.result(),
  };
}
