import { type ApiObject, at, isObject, type JsonObject } from '../object.ts';
import { defaultPodSpec } from './pod.ts';

export function defaultDeployment(deployment: ApiObject): void {
  const spec = specOf(deployment);
  spec['replicas'] ??= 1;
  spec['revisionHistoryLimit'] ??= 10;
  spec['progressDeadlineSeconds'] ??= 600;
  const strategy = objectField(spec, 'strategy');
  strategy['type'] ??= 'RollingUpdate';
  if (strategy['type'] === 'RollingUpdate') {
    const rolling = objectField(strategy, 'rollingUpdate');
    rolling['maxUnavailable'] ??= '25%';
    rolling['maxSurge'] ??= '25%';
  }
}

export function defaultReplicaSet(set: ApiObject): void {
  const spec = specOf(set);
  spec['replicas'] ??= 1;
}

export function defaultDaemonSet(set: ApiObject): void {
  const spec = specOf(set);
  spec['revisionHistoryLimit'] ??= 10;
  const strategy = objectField(spec, 'updateStrategy');
  strategy['type'] ??= 'RollingUpdate';
  if (strategy['type'] === 'RollingUpdate') {
    const rolling = objectField(strategy, 'rollingUpdate');
    rolling['maxUnavailable'] ??= 1;
    rolling['maxSurge'] ??= 0;
  }
}

export function defaultStatefulSet(set: ApiObject): void {
  const spec = specOf(set);
  spec['replicas'] ??= 1;
  spec['revisionHistoryLimit'] ??= 10;
  spec['podManagementPolicy'] ??= 'OrderedReady';
  const strategy = objectField(spec, 'updateStrategy');
  strategy['type'] ??= 'RollingUpdate';
  if (strategy['type'] === 'RollingUpdate') objectField(strategy, 'rollingUpdate')['partition'] ??= 0;
}

export function defaultJob(job: ApiObject): void {
  const spec = specOf(job);
  spec['completionMode'] ??= 'NonIndexed';
  if (spec['completions'] === undefined && spec['parallelism'] === undefined) spec['completions'] = 1;
  spec['parallelism'] ??= 1;
  spec['backoffLimit'] ??= 6;
  spec['suspend'] ??= false;
  spec['manualSelector'] ??= false;
  spec['podReplacementPolicy'] ??= 'TerminatingOrFailed';
  if (spec['selector'] === undefined && spec['manualSelector'] === false && job.metadata.uid) {
    const labels = { 'batch.kubernetes.io/controller-uid': job.metadata.uid };
    spec['selector'] = { matchLabels: labels };
    const template = objectField(spec, 'template');
    const metadata = objectField(template, 'metadata');
    metadata['labels'] = {
      ...(isObject(metadata['labels']) ? metadata['labels'] : {}),
      ...labels,
      'batch.kubernetes.io/job-name': job.metadata.name ?? '',
      'controller-uid': job.metadata.uid,
      'job-name': job.metadata.name ?? '',
    };
  }
}

/** The spec, with the defaults of its pod template filled in. */
function specOf(object: ApiObject): JsonObject {
  const spec = objectField(object as JsonObject, 'spec');
  const podSpec = at(spec, 'template', 'spec');
  if (isObject(podSpec)) defaultPodSpec(podSpec);
  return spec;
}

function objectField(parent: JsonObject, field: string): JsonObject {
  const value = parent[field];
  if (isObject(value)) return value;
  const made: JsonObject = {};
  parent[field] = made;
  return made;
}
