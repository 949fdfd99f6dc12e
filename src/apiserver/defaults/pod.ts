import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';

/** Defaults of a Pod, as core/v1's SetDefaults functions. */
export function defaultPod(pod: ApiObject): void {
  if (isObject(pod['spec'])) defaultPodSpec(pod['spec']);
}

/** Defaults of a pod's spec, also inside templates. */
export function defaultPodSpec(spec: JsonObject): void {
  spec['restartPolicy'] ??= 'Always';
  spec['terminationGracePeriodSeconds'] ??= 30;
  spec['dnsPolicy'] ??= 'ClusterFirst';
  spec['securityContext'] ??= {};
  spec['schedulerName'] ??= 'default-scheduler';
  spec['enableServiceLinks'] ??= true;
  if (typeof spec['serviceAccount'] === 'string') spec['serviceAccountName'] ??= spec['serviceAccount'];
  for (const list of ['initContainers', 'containers', 'ephemeralContainers']) {
    for (const container of listAt(spec, list)) if (isObject(container)) defaultContainer(container, spec);
  }
  for (const volume of listAt(spec, 'volumes')) defaultVolume(volume);
}

function defaultContainer(container: JsonObject, spec: JsonObject): void {
  container['terminationMessagePath'] ??= '/dev/termination-log';
  container['terminationMessagePolicy'] ??= 'File';
  container['resources'] ??= {};
  const resources = container['resources'];
  if (isObject(resources) && isObject(resources['limits'])) {
    resources['requests'] = {
      ...resources['limits'],
      ...(isObject(resources['requests']) ? resources['requests'] : {}),
    };
  }
  if (container['imagePullPolicy'] === undefined && typeof container['image'] === 'string') {
    const tag = /:([^/:@]+)$/.exec(container['image'])?.[1];
    container['imagePullPolicy'] =
      (tag === undefined || tag === 'latest') && !container['image'].includes('@')
        ? 'Always'
        : 'IfNotPresent';
  }
  for (const port of listAt(container, 'ports')) {
    port['protocol'] ??= 'TCP';
    if (spec['hostNetwork'] === true) port['hostPort'] ??= port['containerPort'];
  }
  for (const kind of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
    const probe = container[kind];
    if (!isObject(probe)) continue;
    probe['timeoutSeconds'] ??= 1;
    probe['periodSeconds'] ??= 10;
    probe['successThreshold'] ??= 1;
    probe['failureThreshold'] ??= 3;
    defaultHttpGet(probe['httpGet']);
    if (isObject(probe['grpc'])) probe['grpc']['service'] ??= '';
  }
  if (isObject(container['lifecycle'])) {
    for (const hook of Object.values(container['lifecycle']))
      if (isObject(hook)) defaultHttpGet(hook['httpGet']);
  }
  for (const variable of listAt(container, 'env')) {
    const source = variable['valueFrom'];
    if (isObject(source) && isObject(source['fieldRef'])) source['fieldRef']['apiVersion'] ??= 'v1';
  }
}

function defaultHttpGet(action: unknown): void {
  if (!isObject(action)) return;
  action['path'] ??= '/';
  action['scheme'] ??= 'HTTP';
}

function defaultVolume(volume: JsonObject): void {
  const sources = Object.keys(volume).filter((field) => field !== 'name');
  if (sources.length === 0) volume['emptyDir'] = {};
  for (const kind of ['configMap', 'secret', 'projected', 'downwardAPI']) {
    const source = volume[kind];
    if (isObject(source)) source['defaultMode'] ??= 0o644;
  }
  if (isObject(volume['hostPath'])) volume['hostPath']['type'] ??= '';
  if (isObject(volume['projected'])) {
    for (const source of listAt(volume, 'projected', 'sources')) {
      if (isObject(source['serviceAccountToken']))
        source['serviceAccountToken']['expirationSeconds'] ??= 3600;
    }
  }
}
