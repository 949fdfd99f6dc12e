import { attachRoutes } from './attach-routes.ts';
import { readBackendTlsPolicies } from './backend-tls.ts';
import { createBackendSet } from './backends.ts';
import { createFindings, type GatewayFinding } from './findings.ts';
import { gatewayPlan } from './gateway-plans.ts';
import { readGateways } from './gateway-reader.ts';
import { classStatuses, gatewayStatuses } from './gateway-statuses.ts';
import { compareText } from './identity.ts';
import { ingressPlans } from './ingress.ts';
import { indexNamespaces } from './namespace-selection.ts';
import type { GatewayObjects } from './objects.ts';
import { indexParents } from './parent-refs.ts';
import { indexReferenceGrants } from './reference-grants.ts';
import type { RouteMap } from './route-map.ts';
import { indexServices } from './service-index.ts';
import type { ObjectStatus } from './statuses.ts';

export type { ObjectStatus } from './statuses.ts';

export interface Attached {
  readonly routeMap: RouteMap;
  /** Of the objects of the Gateway API. Ingresses have only an address, which is not known here. */
  readonly statuses: readonly ObjectStatus[];
  /** Problems of Ingresses, which have no conditions. */
  readonly findings: readonly GatewayFinding[];
}

/** Computes what the gateways of a cluster do, and what the API says about each object. */
export function attach(objects: GatewayObjects): Attached {
  const services = indexServices(objects.services);
  const grants = indexReferenceGrants(objects.referenceGrants);
  const backends = createBackendSet();
  const findings = createFindings();
  const { certificates, authorities } = objects;
  const namespaces = indexNamespaces(objects.namespaces);
  const gateways = readGateways(objects, { grants, certificates, authorities, namespaces });
  const policies = readBackendTlsPolicies(objects);
  const routes = attachRoutes(objects, indexParents(gateways), { services, grants, backends, policies });
  const plans = [
    ...ingressPlans(objects, { services, backends, policies, findings }),
    ...gateways.map((gateway) => gatewayPlan(gateway, routes, findings)),
  ].sort((a, b) => compareText(a.key, b.key));
  const statuses = [
    ...classStatuses(objects),
    ...gateways.flatMap((gateway) => gatewayStatuses(gateway, objects.addresses.get(gateway.key) ?? [])),
    ...routes.statuses,
    ...policies.statuses(),
  ];
  return {
    routeMap: { gateways: plans, backends: backends.result() },
    statuses,
    findings: findings.result(),
  };
}
