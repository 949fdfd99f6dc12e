import { hasReason } from '../kube/client.ts';
import { hasLabels, selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import {
  type KubeObject,
  keyOf,
  type Pod,
  type ReplicaSet,
  type ReplicationController,
  splitKey,
} from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { Cache } from './cache.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from './context.ts';
import { adoption, claim, controllerOf, controllerReference, release } from './ownership.ts';
import { queueOwnersOfPods } from './pod-owners.ts';
import { availableIn, byDeletionRank, endOf, isActive, isReady, podFrom } from './pods.ts';

export interface ReplicaSetView {
  readonly set: ReplicaSet;
  /** The pods of its namespace that it controls or selects. */
  readonly pods: readonly Pod[];
  /** Pods of the other ReplicaSets of the same owner, for the spread of deletions. */
  readonly relatedPods?: readonly Pod[];
  /** Why the last creation was refused: a condition that Deployments copy. */
  readonly failure?: string;
  readonly now: number;
}

export interface ReplicaSetPlan {
  readonly adopt: readonly Pod[];
  readonly release: readonly Pod[];
  /** The number of pods to create. */
  readonly create: number;
  readonly delete: readonly Pod[];
  /** The status to write; null if it is up to date. */
  readonly status: NonNullable<ReplicaSet['status']> | null;
  /** Milliseconds until a pod becomes available by minReadySeconds, or until failed pods may be replaced. */
  readonly checkAgainIn: number | null;
}

/** Maximum number of pods created or deleted in one reconcile, as upstream. */
const BURST = 500;
/**
 * The delay before failed pods are replaced, doubled each time all replicas have failed again. Upstream replaces them
 * immediately, so that a pod refused by its node fills the API server with failed pods.
 */
const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 300_000;
/** Older failures are forgotten. */
const FAILURE_MEMORY_MS = 600_000;

/** Computes the next step of a ReplicaSet. Pure. */
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
  const backoff = surplus < 0 ? backoffLeft([...owned, ...adopt], wanted, now) : 0;
  if (backoff > 0) waits.push(backoff);
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
    create: ending || backoff > 0 ? 0 : Math.min(Math.max(0, -surplus), BURST),
    delete:
      ending || surplus <= 0
        ? []
        : byDeletionRank(active, [...active, ...(view.relatedPods ?? [])]).slice(0, Math.min(surplus, BURST)),
    status: same(status, set.status) ? null : status,
    checkAgainIn: waits.length > 0 ? Math.min(...waits) : null,
  };
}

/** Returns the milliseconds until failed pods may be replaced; 0: now. */
function backoffLeft(pods: readonly Pod[], wanted: number, now: number): number {
  const failures = pods
    .filter(({ status }) => status?.phase === 'Failed')
    .map(endOf)
    .filter((end) => now - end < FAILURE_MEMORY_MS);
  if (failures.length === 0) return 0;
  const rounds = Math.ceil(failures.length / Math.max(1, wanted));
  const pause = Math.min(FIRST_BACKOFF_MS * 2 ** (rounds - 1), MAX_BACKOFF_MS);
  return Math.max(0, Math.max(...failures) + pause - now);
}

function conditionsOf(set: ReplicaSet, failure: string | null, now: number) {
  const known = set.status?.conditions ?? [];
  const others = known.filter(({ type }) => type !== 'ReplicaFailure');
  if (failure === null) return others;
  // As upstream, the first failure remains: each message names another pod, so updates would never end.
  const before = known.find(({ type }) => type === 'ReplicaFailure');
  const condition = {
    type: 'ReplicaFailure',
    status: 'True',
    reason: 'FailedCreate',
    message: failure,
    lastTransitionTime: timestamp(now),
  };
  return [...others, before ?? condition];
}

/** A kind that maintains a number of pods: ReplicaSet, or ReplicationController as one. */
interface ReplicatedKind<T extends KubeObject> {
  readonly cache: Cache<T>;
  readonly component: string;
  readonly toReplicaSet: (object: T) => ReplicaSet;
}

/** Converts a ReplicationController to the equivalent ReplicaSet: its selector is a map of labels. */
function replicaSetOf(controller: ReplicationController): ReplicaSet {
  const { metadata = {}, status } = controller;
  const { selector, template, ...spec } = controller.spec ?? {};
  return {
    metadata,
    spec: {
      ...spec,
      selector: { matchLabels: selector ?? template?.metadata?.labels ?? {} },
      ...(template ? { template } : {}),
    },
    ...(status ? { status } : {}),
  };
}

/** Maintains the number of pods of ReplicaSets and ReplicationControllers. */
export function startReplicaSets(context: ControllerContext): void {
  const { replicaSets, replicationControllers } = context.caches;
  start(context, { cache: replicaSets, component: 'replicaset-controller', toReplicaSet: (set) => set });
  start(context, {
    cache: replicationControllers,
    component: 'replication-controller',
    toReplicaSet: replicaSetOf,
  });
}

function start<T extends KubeObject>(context: ControllerContext, kind: ReplicatedKind<T>): void {
  const { caches, clock } = context;
  const { cache, component, toReplicaSet } = kind;
  const { resource } = cache;
  const { pods } = caches;
  const events = recorderFor(context, component);

  const viewOf = (object: T): ReplicaSetView => {
    const set = toReplicaSet(object);
    const mine = pods.controlledBy(set.metadata?.uid ?? '');
    const orphans = pods
      .inNamespace(set.metadata?.namespace ?? '')
      .filter((pod) => !controllerOf(pod) && selects(set.spec?.selector, pod.metadata?.labels));
    const owner = controllerOf(set)?.uid;
    const related = owner
      ? cache
          .controlledBy(owner)
          .filter((other) => other !== object)
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
    const reference = controllerReference(set, resource);
    const one = async () => {
      const pod = await pods.create(podFrom(set.spec?.template, set, reference));
      events.event(set, 'Normal', 'SuccessfulCreate', `Created pod: ${pod.metadata?.name}`, resource);
    };
    // Slow start: a template that the server refuses costs one request, not hundreds.
    for (let left = count, batch = 1; left > 0; left -= batch, batch *= 2) {
      await all(Array.from({ length: Math.min(batch, left) }, one));
    }
  };
  const queue = controllerQueue(context, resource.plural, async (key) => {
    const { namespace, name } = splitKey(key);
    const set = cache.get(namespace, name);
    if (!set) return;
    const view = viewOf(set);
    const plan = reconcileReplicaSet(view);
    try {
      await all([
        ...plan.adopt.map((pod) => pods.patch(pod, 'merge', adoption(pod, set, resource))),
        ...plan.release.map((pod) => pods.patch(pod, 'merge', release(pod, set))),
        createPods(view.set, plan.create),
        ...plan.delete.map(async (pod) => {
          await pods.delete(pod);
          events.event(set, 'Normal', 'SuccessfulDelete', `Deleted pod: ${pod.metadata?.name}`, resource);
        }),
      ]);
    } catch (error) {
      if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
        const failure = messageOf(error);
        const { status } = reconcileReplicaSet({ ...viewOf(set), failure });
        if (status) await cache.updateStatus({ ...set, status });
        events.event(set, 'Warning', 'FailedCreate', `Error creating: ${failure}`, resource);
      }
      throw error;
    }
    // The cache already contains the writes above: the status describes the state after them.
    const current = cache.get(namespace, name);
    if (!current || current.metadata?.uid !== set.metadata?.uid) return;
    const after = reconcileReplicaSet(viewOf(current));
    if (after.status) await cache.updateStatus({ ...current, status: after.status });
    if (after.create > 0 || after.delete.length > 0) queue.add(key);
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });

  cache.informer.handle({
    onAdd: (set) => queue.add(keyOf(set)),
    onUpdate: (set) => queue.add(keyOf(set)),
  });
  queueOwnersOfPods(cache, pods, queue, (owner) => toReplicaSet(owner).spec?.selector);
}
