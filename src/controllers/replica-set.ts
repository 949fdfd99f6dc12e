import { hasReason } from '../kube/client.ts';
import { hasLabels, selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Pod, RESOURCES, type ReplicaSet, splitKey } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from './context.ts';
import { adoption, claim, controllerOf, controllerReference, release } from './ownership.ts';
import { queueOwnersOfPods } from './pod-owners.ts';
import { availableIn, byDeletionRank, isActive, isReady, podFrom } from './pods.ts';

export interface ReplicaSetView {
  readonly set: ReplicaSet;
  /** The pods of its namespace that it controls or selects. */
  readonly pods: readonly Pod[];
  /** Pods of the other ReplicaSets of the same owner, for the spread of deletions. */
  readonly relatedPods?: readonly Pod[];
  /** Why the last creation was refused: a condition that Deployments show as their own. */
  readonly failure?: string;
  readonly now: number;
}

export interface ReplicaSetPlan {
  readonly adopt: readonly Pod[];
  readonly release: readonly Pod[];
  /** How many pods to create. */
  readonly create: number;
  readonly delete: readonly Pod[];
  /** The status to write, or null when it stands already. */
  readonly status: NonNullable<ReplicaSet['status']> | null;
  /** Milliseconds until a pod becomes available by minReadySeconds. */
  readonly checkAgainIn: number | null;
}

/** At most so many pods are created or deleted in one go, as upstream. */
const BURST = 500;

/** What a ReplicaSet needs done. Pure. */
export function reconcileReplicaSet(view: ReplicaSetView): ReplicaSetPlan {
  const { set, now } = view;
  const { owned, adopt, release: toRelease } = claim(set, set.spec?.selector, view.pods);
  const active = [...owned, ...adopt].filter(isActive);
  const wanted = set.spec?.replicas ?? 1;
  const ending = set.metadata?.deletionTimestamp !== undefined;
  const surplus = active.length - wanted;
  const minReady = set.spec?.minReadySeconds ?? 0;
  const waits = active
    .map((pod) => availableIn(pod, minReady, now))
    .filter((wait) => wait > 0 && Number.isFinite(wait));
  const conditions = conditionsOf(set, view.failure ?? null, now);
  const status = {
    replicas: active.length,
    fullyLabeledReplicas: active.filter((pod) =>
      hasLabels(set.spec?.template?.metadata?.labels ?? {}, pod.metadata?.labels),
    ).length,
    readyReplicas: active.filter(isReady).length,
    availableReplicas: active.filter((pod) => availableIn(pod, minReady, now) === 0).length,
    observedGeneration: set.metadata?.generation ?? 0,
    ...(conditions.length > 0 ? { conditions } : {}),
  };
  return {
    adopt,
    release: toRelease,
    create: ending ? 0 : Math.min(Math.max(0, -surplus), BURST),
    delete:
      ending || surplus <= 0
        ? []
        : byDeletionRank(active, [...active, ...(view.relatedPods ?? [])]).slice(0, Math.min(surplus, BURST)),
    status: same(status, set.status) ? null : status,
    checkAgainIn: waits.length > 0 ? Math.min(...waits) : null,
  };
}

function conditionsOf(set: ReplicaSet, failure: string | null, now: number) {
  const known = set.status?.conditions ?? [];
  const others = known.filter(({ type }) => type !== 'ReplicaFailure');
  if (failure === null) return others;
  const before = known.find(({ type, message }) => type === 'ReplicaFailure' && message === failure);
  const condition = {
    type: 'ReplicaFailure',
    status: 'True',
    reason: 'FailedCreate',
    message: failure,
    lastTransitionTime: timestamp(now),
  };
  return [...others, before ?? condition];
}

/** Keeps the number of pods of ReplicaSets. */
export function startReplicaSets(context: ControllerContext): void {
  const { caches, clock } = context;
  const { replicaSets, pods } = caches;
  const events = recorderFor(context, 'replicaset-controller');

  const viewOf = (set: ReplicaSet): ReplicaSetView => {
    const mine = pods.controlledBy(set.metadata?.uid ?? '');
    const orphans = pods
      .inNamespace(set.metadata?.namespace ?? '')
      .filter((pod) => !controllerOf(pod) && selects(set.spec?.selector, pod.metadata?.labels));
    const owner = controllerOf(set)?.uid;
    const related = owner
      ? replicaSets
          .controlledBy(owner)
          .filter((other) => other !== set)
          .flatMap((other) => pods.controlledBy(other.metadata?.uid ?? ''))
      : [];
    const here = (pod: Pod) => !pods.isDeleting(pod);
    return {
      set,
      pods: [...mine, ...orphans].filter(here),
      relatedPods: related.filter(here),
      now: clock.now(),
    };
  };
  const createPods = async (set: ReplicaSet, count: number) => {
    const reference = controllerReference(set, RESOURCES.replicaSets);
    const one = async () => {
      const pod = await pods.create(podFrom(set.spec?.template, set, reference));
      events.event(
        set,
        'Normal',
        'SuccessfulCreate',
        `Created pod: ${pod.metadata?.name}`,
        RESOURCES.replicaSets,
      );
    };
    // Slow start: a template that the server refuses costs one request, not hundreds.
    for (let left = count, batch = 1; left > 0; left -= batch, batch *= 2) {
      await all(Array.from({ length: Math.min(batch, left) }, one));
    }
  };
  const queue = controllerQueue(context, 'replicaset', async (key) => {
    const { namespace, name } = splitKey(key);
    const set = replicaSets.get(namespace, name);
    if (!set) return;
    const plan = reconcileReplicaSet(viewOf(set));
    try {
      await all([
        ...plan.adopt.map((pod) => pods.patch(pod, 'merge', adoption(pod, set, RESOURCES.replicaSets))),
        ...plan.release.map((pod) => pods.patch(pod, 'merge', release(pod, set))),
        createPods(set, plan.create),
        ...plan.delete.map(async (pod) => {
          await pods.delete(pod);
          events.event(
            set,
            'Normal',
            'SuccessfulDelete',
            `Deleted pod: ${pod.metadata?.name}`,
            RESOURCES.replicaSets,
          );
        }),
      ]);
    } catch (error) {
      if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
        const failure = messageOf(error);
        const { status } = reconcileReplicaSet({ ...viewOf(set), failure });
        if (status) await replicaSets.updateStatus({ ...set, status });
        const message = `Error creating: ${failure}`;
        events.event(set, 'Warning', 'FailedCreate', message, RESOURCES.replicaSets);
      }
      throw error;
    }
    // The writes above are in the cache already: the status says what is true after them.
    const current = replicaSets.get(namespace, name);
    if (!current || current.metadata?.uid !== set.metadata?.uid) return;
    const after = reconcileReplicaSet(viewOf(current));
    if (after.status) await replicaSets.updateStatus({ ...current, status: after.status });
    if (after.create > 0 || after.delete.length > 0) queue.add(key);
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });

  replicaSets.informer.handle({
    onAdd: (set) => queue.add(keyOf(set)),
    onUpdate: (set) => queue.add(keyOf(set)),
  });
  queueOwnersOfPods(replicaSets, pods, queue);
}
