import { addQuantities } from '../../kube/quantity-text.ts';
import { isObject, type JsonObject, listAt } from '../object.ts';
import type { TypeDefaults } from '../schema/canonical-form.ts';

/** Sets absent fields. */
export function setAbsent(object: Record<string, unknown>, values: Readonly<Record<string, unknown>>): void {
  for (const [field, value] of Object.entries(values)) object[field] ??= structuredClone(value);
}

/** Returns the object in a field; creates it if absent. */
export function objectIn(parent: Record<string, unknown>, field: string): Record<string, unknown> {
  const value = parent[field];
  if (isObject(value)) return value;
  const made: Record<string, unknown> = {};
  parent[field] = made;
  return made;
}

const fileMode: TypeDefaults = (source) => setAbsent(source, { defaultMode: 0o644 });

/** Images without a tag, or with the tag "latest", are always pulled; a digest identifies the content. */
function pullPolicy(image: unknown): string {
  const text = String(image ?? '');
  const [, name = '', tag = 'latest'] = REFERENCE.exec(text) ?? [];
  if (text.includes('@') || name === '' || name.length > MAX_IMAGE_NAME) return 'IfNotPresent';
  return tag === 'latest' ? 'Always' : 'IfNotPresent';
}

const MAX_IMAGE_NAME = 255;
/** An image reference without a digest (distribution/reference): name, tag. */
const REFERENCE =
  /^((?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d)|\[[0-9a-fA-F:]+\])(?::\d+)?\/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)(?::(\w[\w.-]{0,127}))?$/;

const container: TypeDefaults = (object) =>
  setAbsent(object, {
    imagePullPolicy: pullPolicy(object['image']),
    terminationMessagePath: '/dev/termination-log',
    terminationMessagePolicy: 'File',
  });

const RESOURCE_NAMES = /^(cpu|memory|hugepages-.+)$/;

/** Omitted requests equal the limits; with limits of the whole pod, its requests are set too. */
function defaultRequests(spec: JsonObject): void {
  const containers = [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')];
  for (const one of containers) {
    const resources = one['resources'];
    if (isObject(resources) && isObject(resources['limits'])) {
      resources['requests'] = {
        ...resources['limits'],
        ...(isObject(resources['requests']) ? resources['requests'] : {}),
      };
    }
  }
  const whole = spec['resources'];
  if (!isObject(whole) || !isObject(whole['limits']) || Object.keys(whole['limits']).length === 0) return;
  const requests: JsonObject = isObject(whole['requests']) ? whole['requests'] : {};
  const sums = new Map<string, string>();
  for (const one of listAt(spec, 'containers')) {
    const own = isObject(one['resources']) ? one['resources']['requests'] : undefined;
    for (const [name, amount] of Object.entries(isObject(own) ? own : {})) {
      if (!RESOURCE_NAMES.test(name) || name.startsWith('hugepages-')) continue;
      sums.set(name, addQuantities(sums.get(name) ?? '0', String(amount)));
    }
  }
  for (const [name, amount] of sums) requests[name] ??= amount;
  for (const [name, amount] of Object.entries(whole['limits'])) {
    if (RESOURCE_NAMES.test(name)) requests[name] ??= amount;
  }
  if (Object.keys(requests).length > 0) whole['requests'] = requests;
}

function defaultHostPorts(spec: JsonObject): void {
  if (spec['hostNetwork'] !== true) return;
  for (const one of [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')]) {
    for (const port of listAt(one, 'ports')) if (!port['hostPort']) port['hostPort'] = port['containerPort'];
  }
}

/** Defaults of core/v1, as upstream's SetDefaults functions and conversions give them. */
export const CORE_DEFAULTS: Readonly<Record<string, TypeDefaults>> = {
  'core.v1.Pod'(pod) {
    const spec = objectIn(pod, 'spec') as JsonObject;
    setAbsent(spec, { enableServiceLinks: true });
    defaultRequests(spec);
    defaultHostPorts(spec);
  },
  'core.v1.PodSpec'(spec) {
    setAbsent(spec, {
      dnsPolicy: 'ClusterFirst',
      restartPolicy: 'Always',
      securityContext: {},
      terminationGracePeriodSeconds: 30,
      schedulerName: 'default-scheduler',
    });
    const grace = spec['terminationGracePeriodSeconds'];
    if (typeof grace === 'number' && grace < 0) spec['terminationGracePeriodSeconds'] = 1;
    defaultHostPorts(spec as JsonObject);
    // The deprecated field is kept equal.
    const account = spec['serviceAccountName'] || spec['serviceAccount'];
    if (account) Object.assign(spec, { serviceAccountName: account, serviceAccount: account });
  },
  'core.v1.Container': container,
  'core.v1.EphemeralContainer': container,
  'core.v1.Volume'(volume) {
    if (Object.keys(volume).every((field) => field === 'name')) volume['emptyDir'] = {};
    const image = volume['image'];
    if (isObject(image)) image['pullPolicy'] ||= pullPolicy(image['reference']);
  },
  'core.v1.Probe'(probe) {
    for (const [field, value] of Object.entries({
      timeoutSeconds: 1,
      periodSeconds: 10,
      successThreshold: 1,
      failureThreshold: 3,
    })) {
      probe[field] ||= value;
    }
  },
  'core.v1.HTTPGetAction': (action) => {
    action['path'] ||= '/';
    action['scheme'] ||= 'HTTP';
  },
  'core.v1.SecretVolumeSource': fileMode,
  'core.v1.ConfigMapVolumeSource': fileMode,
  'core.v1.DownwardAPIVolumeSource': fileMode,
  'core.v1.ProjectedVolumeSource': fileMode,
  'core.v1.ServiceAccountTokenProjection': (source) => setAbsent(source, { expirationSeconds: 3600 }),
  'core.v1.HostPathVolumeSource': (source) => setAbsent(source, { type: '' }),
  'core.v1.ObjectFieldSelector': (selector) => setAbsent(selector, { apiVersion: 'v1' }),
  'core.v1.Service'(service) {
    const spec = objectIn(service, 'spec');
    spec['sessionAffinity'] ||= 'None';
    if (spec['sessionAffinity'] === 'None') delete spec['sessionAffinityConfig'];
    else if (spec['sessionAffinity'] === 'ClientIP') {
      const client = objectIn(objectIn(spec, 'sessionAffinityConfig'), 'clientIP');
      client['timeoutSeconds'] ??= 10800;
    }
    spec['type'] ||= 'ClusterIP';
    for (const port of listAt(spec, 'ports')) {
      port['protocol'] ||= 'TCP';
      if (port['targetPort'] === undefined || port['targetPort'] === 0 || port['targetPort'] === '') {
        port['targetPort'] = port['port'] ?? 0;
      }
    }
    const balanced = spec['type'] === 'LoadBalancer';
    const reachable = balanced || spec['type'] === 'NodePort' || listAt(spec, 'externalIPs').length > 0;
    if (reachable) spec['externalTrafficPolicy'] ||= 'Cluster';
    if (['NodePort', 'LoadBalancer', 'ClusterIP'].includes(String(spec['type']))) {
      spec['internalTrafficPolicy'] ??= 'Cluster';
    }
    if (!balanced) return;
    spec['allocateLoadBalancerNodePorts'] ??= true;
    for (const ingress of listAt(service, 'status', 'loadBalancer', 'ingress')) {
      if (ingress['ip']) ingress['ipMode'] ??= 'VIP';
    }
  },
  'core.v1.ReplicationController'(controller) {
    const spec = objectIn(controller, 'spec');
    spec['replicas'] ??= 1;
    const template = spec['template'];
    const labels =
      isObject(template) && isObject(template['metadata']) ? template['metadata']['labels'] : null;
    if (!isObject(labels)) return;
    if (!isObject(spec['selector']) || Object.keys(spec['selector']).length === 0)
      spec['selector'] = { ...labels };
    const metadata = objectIn(controller, 'metadata');
    if (!isObject(metadata['labels']) || Object.keys(metadata['labels']).length === 0) {
      metadata['labels'] = { ...labels };
    }
  },
  'core.v1.Secret': (secret) => {
    secret['type'] ||= 'Opaque';
  },
  'core.v1.PersistentVolume'(volume) {
    objectIn(volume, 'status')['phase'] ||= 'Pending';
    const spec = objectIn(volume, 'spec');
    spec['persistentVolumeReclaimPolicy'] ||= 'Retain';
    spec['volumeMode'] ??= 'Filesystem';
  },
  'core.v1.PersistentVolumeClaim': (claim) => {
    objectIn(claim, 'status')['phase'] ||= 'Pending';
  },
  'core.v1.PersistentVolumeClaimSpec': (spec) => setAbsent(spec, { volumeMode: 'Filesystem' }),
  'core.v1.EndpointPort': (port) => {
    port['protocol'] ||= 'TCP';
  },
  'core.v1.Namespace'(namespace) {
    const metadata = objectIn(namespace, 'metadata');
    if (metadata['name']) objectIn(metadata, 'labels')['kubernetes.io/metadata.name'] = metadata['name'];
  },
  'core.v1.NamespaceStatus': (status) => {
    status['phase'] ||= 'Active';
  },
  'core.v1.NodeSpec'(spec) {
    // The deprecated field equals the first item of the newer one, and overrides it.
    const cidrs: unknown[] = Array.isArray(spec['podCIDRs']) ? spec['podCIDRs'] : [];
    if (spec['podCIDR'] && spec['podCIDR'] !== cidrs[0]) spec['podCIDRs'] = [spec['podCIDR']];
    else if (cidrs[0]) spec['podCIDR'] = cidrs[0];
  },
  'core.v1.NodeStatus': (status) => {
    if (isObject(status['capacity'])) status['allocatable'] ??= { ...status['capacity'] };
  },
  'core.v1.LimitRangeItem'(item) {
    if (item['type'] !== 'Container') return;
    const part = (field: string) => (isObject(item[field]) ? item[field] : {});
    item['default'] = { ...part('max'), ...part('default') };
    item['defaultRequest'] = { ...part('min'), ...part('default'), ...part('defaultRequest') };
  },
};
