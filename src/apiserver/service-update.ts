import { type ApiObject, equal, isObject, type JsonObject, listAt } from './object.ts';

const needsAddress = (spec: JsonObject) => spec['type'] !== 'ExternalName';
const needsNodePorts = (spec: JsonObject) =>
  spec['type'] === 'NodePort' ||
  (spec['type'] === 'LoadBalancer' && spec['allocateLoadBalancerNodePorts'] !== false);
/** Node ports stay when only their allocation is turned off: the user removes them. */
const mayHaveNodePorts = (spec: JsonObject) => spec['type'] === 'NodePort' || spec['type'] === 'LoadBalancer';
const needsHealthPort = (spec: JsonObject) =>
  spec['type'] === 'LoadBalancer' && spec['externalTrafficPolicy'] === 'Local';
const isReachable = (spec: JsonObject) =>
  spec['type'] === 'NodePort' ||
  spec['type'] === 'LoadBalancer' ||
  (Array.isArray(spec['externalIPs']) && spec['externalIPs'].length > 0);

/**
 * Adapts an update of a Service to its allocations: values that the client omitted remain; values that only the old
 * type needed are removed unless the client changed them (then validation refuses them). As upstream's
 * patchAllocatedValues, normalizeClusterIPs and dropTypeDependentFields in pkg/registry/core/service.
 */
export function prepareServiceUpdate(service: ApiObject, before: ApiObject): void {
  const spec = isObject(service['spec']) ? service['spec'] : {};
  const old = isObject(before['spec']) ? before['spec'] : {};
  spec['type'] ??= 'ClusterIP';
  if (needsAddress(spec) && needsAddress(old)) keepAddresses(spec, old);
  if (needsNodePorts(spec) && needsNodePorts(old)) keepNodePorts(spec, old);
  if (needsHealthPort(spec) && needsHealthPort(old) && !spec['healthCheckNodePort']) {
    copy(spec, old, 'healthCheckNodePort');
  }
  dropUnneeded(spec, old);
  trimToSingleStack(spec, old);
  if (old['type'] === 'LoadBalancer' && spec['type'] !== 'LoadBalancer') {
    service['status'] = { ...(isObject(service['status']) ? service['status'] : {}), loadBalancer: {} };
  }
}

function keepAddresses(spec: JsonObject, old: JsonObject): void {
  const untouched = equal(spec['clusterIPs'], old['clusterIPs']);
  if (!spec['clusterIP'] && (untouched || isEmpty(spec['clusterIPs']))) copy(spec, old, 'clusterIP');
  if (spec['clusterIP'] === old['clusterIP']) {
    if (isEmpty(spec['clusterIPs'])) copy(spec, old, 'clusterIPs');
  } else if (untouched && spec['clusterIP']) spec['clusterIPs'] = [spec['clusterIP']];
  if (isEmpty(spec['ipFamilies'])) copy(spec, old, 'ipFamilies');
  if (spec['ipFamilyPolicy'] === undefined) copy(spec, old, 'ipFamilyPolicy');
}

function keepNodePorts(spec: JsonObject, old: JsonObject): void {
  const protocol = (port: JsonObject) => port['protocol'] ?? 'TCP';
  for (const port of listAt(spec, 'ports')) {
    if (port['nodePort']) continue;
    const same = listAt(old, 'ports').find(
      (other) => other['port'] === port['port'] && protocol(other) === protocol(port),
    );
    if (same?.['nodePort']) port['nodePort'] = same['nodePort'];
  }
}

function dropUnneeded(spec: JsonObject, old: JsonObject): void {
  const dropUnchanged = (...fields: string[]) => {
    for (const field of fields) if (equal(spec[field], old[field])) delete spec[field];
  };
  if (needsAddress(old) && !needsAddress(spec)) {
    dropUnchanged('clusterIP', 'clusterIPs', 'ipFamilies', 'ipFamilyPolicy', 'internalTrafficPolicy');
  }
  if (mayHaveNodePorts(old) && !mayHaveNodePorts(spec)) {
    const given = new Set(listAt(old, 'ports').map((port) => port['nodePort']));
    for (const port of listAt(spec, 'ports')) if (given.has(port['nodePort'])) delete port['nodePort'];
  }
  if (needsHealthPort(old) && !needsHealthPort(spec)) dropUnchanged('healthCheckNodePort');
  if (old['type'] === 'LoadBalancer' && spec['type'] !== 'LoadBalancer') {
    dropUnchanged('allocateLoadBalancerNodePorts', 'loadBalancerClass');
  }
  if (isReachable(old) && !isReachable(spec)) dropUnchanged('externalTrafficPolicy');
}

/** Removes the second family of a Service that changes to a single stack; the first one is kept. */
function trimToSingleStack(spec: JsonObject, old: JsonObject): void {
  if (spec['ipFamilyPolicy'] !== 'SingleStack' || old['ipFamilyPolicy'] === 'SingleStack') return;
  for (const field of ['ipFamilies', 'clusterIPs']) {
    const list = spec[field];
    if (Array.isArray(list) && equal(list, old[field])) spec[field] = list.slice(0, 1);
  }
}

const isEmpty = (list: unknown) => !Array.isArray(list) || list.length === 0;

function copy(spec: JsonObject, old: JsonObject, field: string): void {
  const value = old[field];
  if (value !== undefined) spec[field] = structuredClone(value);
}
