import type { IPFamily } from '../lib/address.ts';
import { type ServiceMap, SOURCE_CLASSES } from '../service/model.ts';

export type TrafficPolicy = 'internal' | 'external';

/**
 * Counts the service ports of a family with traffic policy Local that have endpoints in the cluster but none on this
 * node, like kube-proxy's metric sync_proxy_rules_no_local_endpoints_total.
 */
export function portsWithoutLocalEndpoints(map: ServiceMap, family: IPFamily): Record<TrafficPolicy, number> {
  const ports = { internal: new Set<string>(), external: new Set<string>() };
  for (const { family: own, kind, owner, routes } of map.frontends.values()) {
    if (own !== family) continue;
    const isWithout = SOURCE_CLASSES.some((source) => {
      const route = routes[source];
      return route.action !== 'forward' && route.reason === 'no-local-endpoints';
    });
    if (!isWithout) continue;
    ports[kind === 'ClusterIP' ? 'internal' : 'external'].add(
      `${owner.namespace}/${owner.name}:${owner.portName}`,
    );
  }
  return { internal: ports.internal.size, external: ports.external.size };
}
