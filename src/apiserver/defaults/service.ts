import { type ApiObject, isObject, listAt } from '../object.ts';

/** Defaults of a Service; addresses and node ports are given by the allocator. */
export function defaultService(service: ApiObject): void {
  const spec = service['spec'];
  if (!isObject(spec)) return;
  spec['sessionAffinity'] ??= 'None';
  if (spec['sessionAffinity'] === 'None') delete spec['sessionAffinityConfig'];
  if (spec['sessionAffinity'] === 'ClientIP') {
    spec['sessionAffinityConfig'] ??= { clientIP: { timeoutSeconds: 10800 } };
    const config = spec['sessionAffinityConfig'];
    if (isObject(config)) {
      config['clientIP'] ??= {};
      if (isObject(config['clientIP'])) config['clientIP']['timeoutSeconds'] ??= 10800;
    }
  }
  spec['type'] ??= 'ClusterIP';
  for (const port of listAt(service, 'spec', 'ports')) {
    port['protocol'] ??= 'TCP';
    if (spec['type'] !== 'ExternalName') port['targetPort'] ??= port['port'];
  }
  const external = spec['type'] === 'NodePort' || spec['type'] === 'LoadBalancer';
  const externalIps = Array.isArray(spec['externalIPs']) && spec['externalIPs'].length > 0;
  if (external || externalIps) spec['externalTrafficPolicy'] ??= 'Cluster';
  if (spec['type'] === 'LoadBalancer') spec['allocateLoadBalancerNodePorts'] ??= true;
  if (spec['type'] !== 'ExternalName') spec['internalTrafficPolicy'] ??= 'Cluster';
}
