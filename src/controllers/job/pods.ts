import { type Job, type Pod, RESOURCES } from '../../kube/types.ts';
import { controllerReference } from '../ownership.ts';
import { conditionOf, podFrom, timeOf } from '../pods.ts';
import { FAILURE_COUNT, IGNORED_FAILURE_COUNT, INDEX } from './indexes.ts';

/** Finalizer of a pod until the Job's status has counted it (KEP-2307). */
export const TRACKING = 'batch.kubernetes.io/job-tracking';

export function isTracked(pod: Pod): boolean {
  return pod.metadata?.finalizers?.includes(TRACKING) === true;
}

/** The failure count of an index, as recorded in its next pod. */
export interface IndexFailures {
  readonly counted: number;
  readonly ignored: number;
}

/** Builds a pod of the Job; for an index with its number. */
export function jobPod(job: Job, index: number | null, failures: IndexFailures | null): Pod {
  const made = podFrom(job.spec?.template, job, controllerReference(job, RESOURCES.jobs));
  const finalizers = [...(made.metadata?.finalizers ?? []), TRACKING];
  const pod = { ...made, metadata: { ...made.metadata, finalizers } };
  if (index === null || !pod.spec) return pod;
  const name = job.metadata?.name ?? '';
  const variable = {
    name: 'JOB_COMPLETION_INDEX',
    valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: `metadata.labels['${INDEX}']` } },
  };
  const withVariable = <T extends { env?: { name: string }[] }>(container: T): T => {
    const env = container.env ?? [];
    return env.some((entry) => entry.name === variable.name)
      ? container
      : { ...container, env: [...env, variable] };
  };
  const counts = failures
    ? {
        [FAILURE_COUNT]: String(failures.counted),
        ...(failures.ignored > 0 ? { [IGNORED_FAILURE_COUNT]: String(failures.ignored) } : {}),
      }
    : {};
  // Host names have at most 63 characters.
  const suffix = `-${index}-`;
  return {
    ...pod,
    metadata: {
      ...pod.metadata,
      generateName: `${name.slice(0, 63 - 5 - suffix.length)}${suffix}`,
      annotations: { ...pod.metadata.annotations, [INDEX]: String(index), ...counts },
      labels: { ...pod.metadata.labels, [INDEX]: String(index) },
    },
    spec: {
      ...pod.spec,
      hostname: pod.spec.hostname ?? `${name}-${index}`,
      containers: pod.spec.containers.map(withVariable),
      ...(pod.spec.initContainers ? { initContainers: pod.spec.initContainers.map(withVariable) } : {}),
    },
  };
}

/** Builds the patch that removes the tracking finalizer. */
export function withoutTracking(pod: Pod) {
  const { uid, resourceVersion, finalizers = [] } = pod.metadata ?? {};
  return {
    metadata: { uid, resourceVersion, finalizers: finalizers.filter((finalizer) => finalizer !== TRACKING) },
  };
}

/** Returns when a pod ended, in milliseconds since 1970: from its containers, else its readiness, else its deletion. */
export function finishTime(pod: Pod): number {
  const ends = (pod.status?.containerStatuses ?? []).map(({ state }) =>
    timeOf(state?.terminated?.finishedAt),
  );
  const last = Math.max(0, ...ends);
  if (last > 0) return last;
  const ready = conditionOf(pod, 'Ready');
  if (ready?.status === 'False' && ready.lastTransitionTime) return timeOf(ready.lastTransitionTime);
  return timeOf(pod.metadata?.deletionTimestamp ?? pod.metadata?.creationTimestamp);
}
