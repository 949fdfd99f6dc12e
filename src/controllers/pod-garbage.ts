import { keyOf, type Node, type Pod } from '../kube/types.ts';
import { all, type ControllerContext, controllerQueue } from './context.ts';
import { isFinished, timeOf } from './pods.ts';

/** Finished pods above this number are deleted, oldest first (upstream's --terminated-pod-gc-threshold). */
const MAX_FINISHED = 12_500;
const PERIOD_MS = 20_000;
const OUT_OF_SERVICE = 'node.kubernetes.io/out-of-service';

export interface PodGarbageView {
  readonly pods: readonly Pod[];
  readonly nodes: readonly Node[];
  readonly maxFinished: number;
}

/**
 * Returns the pods that no other controller deletes: finished pods above the limit, deleted pods that never had a node,
 * and pods on a node that is marked out of service (upstream's PodGC). Pure.
 */
export function garbagePods({ pods, nodes, maxFinished }: PodGarbageView): Pod[] {
  const isDeleting = (pod: Pod) => pod.metadata?.deletionTimestamp !== undefined;
  const unscheduled = pods.filter((pod) => isDeleting(pod) && !pod.spec?.nodeName);
  const lost = new Set(
    nodes
      .filter(
        ({ spec, status }) =>
          spec?.taints?.some(({ key }) => key === OUT_OF_SERVICE) &&
          status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value !== 'True'),
      )
      .map(({ metadata }) => metadata?.name),
  );
  const stranded = pods.filter((pod) => isDeleting(pod) && lost.has(pod.spec?.nodeName));
  const finished = pods
    .filter((pod) => isFinished(pod) && !isDeleting(pod))
    .sort((a, b) => timeOf(a.metadata?.creationTimestamp) - timeOf(b.metadata?.creationTimestamp));
  return [...unscheduled, ...stranded, ...finished.slice(0, Math.max(0, finished.length - maxFinished))];
}

/** Deletes pods that no other controller deletes. */
export function startPodGarbage(context: ControllerContext): void {
  const { pods, nodes } = context.caches;
  const queue = controllerQueue(context, 'pod-garbage', async (key) => {
    queue.addAfter(key, PERIOD_MS);
    const garbage = garbagePods({
      pods: pods.informer.list(),
      nodes: nodes.informer.list(),
      maxFinished: MAX_FINISHED,
    });
    // Pods with only finalizers left are already deleted.
    const left = garbage.filter(({ metadata }) => metadata?.deletionGracePeriodSeconds !== 0);
    await all(left.map((pod) => pods.delete(pod, { gracePeriodSeconds: 0 })));
    context.logger.debug({ pods: left.map(keyOf) }, 'pods collected');
  });
  queue.add('all');
}
