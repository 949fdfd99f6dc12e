import type { Client } from '../kube/client.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { type KubeObject, type Node, type Pod, RESOURCES, type Resource } from '../kube/types.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import type { ManifestObject } from './manifests.ts';

/** Returns the reason why a requirement is not met; null if it is met. */
export type Requirement = () => string | null;

/** Local copies of the objects that readiness depends on. */
export interface ClusterWatch {
  readonly nodes: Informer<Node>;
  readonly pods: Informer<Pod>;
  follow<T extends KubeObject>(resource: Resource<T>): Informer<T>;
  /**
   * Resolves when every requirement is met, without a break for `stableMs` if that is not 0; rejects with the unmet ones
   * if `deadline` aborts first.
   */
  until(requirements: readonly Requirement[], deadline: AbortSignal, stableMs?: number): Promise<void>;
}

export function watchCluster(client: Client, signal: AbortSignal): ClusterWatch {
  const informers = new Map<string, Informer<KubeObject>>();
  const listeners = new Set<() => void>();
  const follow = <T extends KubeObject>(resource: Resource<T>): Informer<T> => {
    const key = `${resource.group}/${resource.plural}`;
    const known = informers.get(key);
    if (known) return known as unknown as Informer<T>;
    const informer = startInformer<T>({
      client,
      resource,
      clock: systemClock,
      random: Math.random,
      logger: silentLogger,
      signal,
    });
    const look = () => {
      for (const listener of listeners) listener();
    };
    informer.handle({ onAdd: look, onUpdate: look, onDelete: look });
    informers.set(key, informer as unknown as Informer<KubeObject>);
    return informer;
  };
  return {
    nodes: follow(RESOURCES.nodes),
    pods: follow(RESOURCES.pods),
    follow,
    until(requirements, deadline, stableMs = 0) {
      return new Promise((resolve, reject) => {
        const missing = () => requirements.flatMap((requirement) => requirement() ?? []);
        let last: readonly string[] = [];
        let stable: NodeJS.Timeout | undefined;
        const done = () => {
          finish();
          resolve();
        };
        const look = () => {
          const now = missing();
          if (now.length > 0) {
            last = now;
            clearTimeout(stable);
            stable = undefined;
          } else if (stableMs === 0) done();
          else stable ??= setTimeout(done, stableMs);
        };
        const abort = () => {
          finish();
          // All may be met for a moment.
          const message =
            (missing().length > 0 ? missing() : last).join('\n  ') || messageOf(deadline.reason);
          reject(new FairleadError(message, { op: 'wait for the cluster', code: 'not-ready' }));
        };
        const finish = () => {
          clearTimeout(stable);
          listeners.delete(look);
          deadline.removeEventListener('abort', abort);
        };
        listeners.add(look);
        deadline.addEventListener('abort', abort);
        if (deadline.aborted) abort();
        else look();
      });
    },
  };
}

/** Requires that a node is Ready. */
export function nodeReady(watch: ClusterWatch, name: string): Requirement {
  return () => {
    const ready = watch.nodes.get(name)?.status?.conditions?.find((condition) => condition.type === 'Ready');
    return ready?.status === 'True'
      ? null
      : `node ${name} is not ready${ready?.message ? `: ${ready.message}` : ''}`;
  };
}

/**
 * Requires that ready pods became ready after `since` (milliseconds since 1970): after a stop, their
 * status is out of date until their nodes' agents have restarted them.
 */
export function podsRestarted(watch: ClusterWatch, since: number): Requirement[] {
  return watch.pods
    .list()
    .filter(isReady)
    .map(({ metadata }) => {
      const key = `${metadata?.namespace}/${metadata?.name}`;
      return () => {
        const pod = watch.pods.get(key);
        if (!pod) return null;
        return isReadySince(pod, since) ? null : `Pod ${key}: not restarted yet`;
      };
    });
}

const isReady = ({ status }: Pod): boolean =>
  status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True') === true;

/** Reports whether a pod is ready, and all its containers were started since a time (milliseconds since 1970). */
function isReadySince(pod: Pod, since: number): boolean {
  const starts = (pod.status?.containerStatuses ?? []).map(({ state }) => state?.running?.startedAt);
  // The API writes whole seconds.
  return isReady(pod) && starts.every((at) => Date.parse(String(at)) >= Math.floor(since / 1000) * 1000);
}

/**
 * Watches for the first pod that is ready with containers started since a time (milliseconds since 1970). Returns a function
 * that returns when it was, by `now`; null: none is yet.
 */
export function watchFirstReady(
  { pods }: Pick<ClusterWatch, 'pods'>,
  since: number,
  now: () => number,
): () => number | null {
  let at: number | null = null;
  const look = (pod: Pod) => {
    if (at === null && isReadySince(pod, since)) at = now();
  };
  pods.handle({ onAdd: look, onUpdate: look, onDelete() {} });
  return () => at;
}

/** Whether a container of the pod was started again since a time (milliseconds since 1970). */
export function restartedSince({ status }: Pod, since: number): boolean {
  return (status?.containerStatuses ?? []).some(
    ({ restartCount, state }) =>
      // The API writes whole seconds.
      (restartCount ?? 0) > 0 &&
      Date.parse(String(state?.running?.startedAt)) >= Math.floor(since / 1000) * 1000,
  );
}

/**
 * Returns the readiness requirement of a manifest's object: replicas available, pods ready, jobs complete. Null if it
 * has none.
 */
export function objectReady(watch: ClusterWatch, entry: ManifestObject): Requirement | null {
  const { namespace, name } = entry;
  const key = namespace ? `${namespace}/${name}` : name;
  switch (entry.kind?.kind) {
    case 'Deployment':
    case 'StatefulSet':
    case 'ReplicaSet': {
      const resource =
        entry.kind.kind === 'Deployment'
          ? RESOURCES.deployments
          : entry.kind.kind === 'StatefulSet'
            ? RESOURCES.statefulSets
            : RESOURCES.replicaSets;
      const informer = watch.follow(resource as Resource<KubeObject>);
      return () => {
        const object = informer.get(key) as
          | {
              metadata?: { generation?: number };
              spec?: { replicas?: number; selector?: { matchLabels?: unknown } };
              status?: { availableReplicas?: number; observedGeneration?: number };
            }
          | undefined;
        const wanted = object?.spec?.replicas ?? 1;
        const available = object?.status?.availableReplicas ?? 0;
        const current =
          object && (object.status?.observedGeneration ?? 0) >= (object.metadata?.generation ?? 0);
        if (current && available >= wanted) return null;
        return `${entry.object.kind} ${name}: ${available} of ${wanted} available${podTrouble(watch, namespace, object?.spec?.selector?.matchLabels)}`;
      };
    }
    case 'DaemonSet': {
      const informer = watch.follow(RESOURCES.daemonSets);
      return () => {
        const set = informer.get(key);
        const wanted = set?.status?.desiredNumberScheduled ?? 0;
        const available = set?.status?.numberAvailable ?? 0;
        const current = set && (set.status?.observedGeneration ?? 0) >= (set.metadata?.generation ?? 0);
        return current && available >= wanted
          ? null
          : `DaemonSet ${name}: ${available} of ${wanted} available`;
      };
    }
    case 'Job': {
      const informer = watch.follow(RESOURCES.jobs);
      return () =>
        informer.get(key)?.status?.conditions?.some((one) => one.type === 'Complete' && one.status === 'True')
          ? null
          : `Job ${name} is not complete`;
    }
    case 'Pod':
      return () => {
        const pod = watch.pods.get(key);
        const ready = pod?.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True');
        return ready || pod?.status?.phase === 'Succeeded'
          ? null
          : `Pod ${name}: ${pod ? podProblem(pod) : 'not created yet'}`;
      };
    default:
      return null;
  }
}

function podTrouble(watch: ClusterWatch, namespace: string, labels: unknown): string {
  const wanted = Object.entries((labels ?? {}) as Record<string, string>);
  const pods = watch.pods
    .list()
    .filter((pod) => pod.metadata?.namespace === namespace)
    .filter((pod) =>
      wanted.every(
        ([key, value]) => (pod.metadata?.labels as Record<string, string> | undefined)?.[key] === value,
      ),
    );
  const problems = new Set(pods.map(podProblem).filter((text) => text !== 'ready'));
  return problems.size > 0 ? ` (${[...problems].join('; ')})` : '';
}

/** Describes why a pod is not ready; "ready" if it is. */
export function podProblem(pod: Pod): string {
  const conditions = pod.status?.conditions ?? [];
  if (conditions.some((one) => one.type === 'Ready' && one.status === 'True')) return 'ready';
  const scheduled = conditions.find((one) => one.type === 'PodScheduled');
  if (scheduled?.status === 'False') return scheduled.message ?? 'not scheduled';
  for (const status of [
    ...(pod.status?.initContainerStatuses ?? []),
    ...(pod.status?.containerStatuses ?? []),
  ]) {
    const { waiting, terminated } = status.state ?? {};
    if (waiting?.reason && waiting.reason !== 'ContainerCreating' && waiting.reason !== 'PodInitializing') {
      return `container ${status.name}: ${waiting.reason}${waiting.message ? `: ${waiting.message}` : ''}`;
    }
    // The sandbox, the network or a volume of the pod.
    if (waiting?.message) return waiting.message;
    if (terminated && (terminated.exitCode !== 0 || pod.status?.phase === 'Running'))
      return `container ${status.name} exited with status ${terminated.exitCode}`;
  }
  return pod.status?.message ?? pod.status?.phase ?? 'pending';
}
