import { hasReason } from '../kube/client.ts';
import { selects } from '../kube/selector.ts';
import {
  type ControllerRevision,
  keyOf,
  type Pod,
  type PodTemplateSpec,
  RESOURCES,
  type StatefulSet,
  splitKey,
} from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from './context.ts';
import { resolvePercent } from './deployment-rollout.ts';
import { createFailureBackoff } from './failure-backoff.ts';
import { adoption, claim, controllerOf, controllerReference, release } from './ownership.ts';
import { queueOwnersOfPods } from './pod-owners.ts';
import { availableIn, isFinished, isReady, podFrom } from './pods.ts';
import { REVISION_LABEL, revisionHistory, templateOf } from './revision-history.ts';
import { claimNameAt, claimOwners, claimsAt, withClaimVolumes } from './storage/stateful-claims.ts';

export interface StatefulSetView {
  readonly set: StatefulSet;
  /** Pods that it controls or selects, including those being deleted. */
  readonly pods: readonly Pod[];
  /** The revision of pods below the partition, and its template. */
  readonly current: { readonly name: string; readonly template: PodTemplateSpec | undefined };
  /** The revision of the current template. */
  readonly update: { readonly name: string; readonly template: PodTemplateSpec | undefined };
  readonly now: number;
  /** Milliseconds until a failed pod may be replaced. Absent: immediately. */
  readonly pauseOf?: (pod: Pod) => number;
}

export interface StatefulSetPlan {
  readonly adopt: readonly Pod[];
  readonly release: readonly Pod[];
  readonly create: readonly Pod[];
  readonly delete: readonly Pod[];
  readonly status: NonNullable<StatefulSet['status']> | null;
  readonly checkAgainIn: number | null;
}

/**
 * Computes the next step of a StatefulSet: pods in order and one at a time, or all at once with podManagementPolicy
 * Parallel. Pure.
 */
export function reconcileStatefulSet(view: StatefulSetView): StatefulSetPlan {
  const { set, now } = view;
  const { owned, adopt, release: toRelease } = claim(set, set.spec?.selector, view.pods);
  const name = set.metadata?.name ?? '';
  // Pods that it selects but whose names do not match are not its own.
  const mine = [...owned, ...adopt].filter((pod) => ordinalOf(name, pod) !== null);
  const status = statusOf(view, mine);
  const minReady = set.spec?.minReadySeconds ?? 0;
  const waits = mine
    .map((pod) => availableIn(pod, minReady, now))
    .filter((wait) => wait > 0 && Number.isFinite(wait));
  for (const pod of mine) {
    const pause = view.pauseOf?.(pod) ?? 0;
    if (pause > 0) waits.push(pause);
  }
  const steps =
    set.metadata?.deletionTimestamp === undefined ? stepsOf(view, mine) : { create: [], delete: [] };
  return {
    adopt: adopt.filter((pod) => ordinalOf(name, pod) !== null),
    release: toRelease,
    ...steps,
    status: same(status, set.status) ? null : status,
    checkAgainIn: waits.length > 0 ? Math.min(...waits) : null,
  };
}

/** "web-3" → 3 for the set "web"; null for names of another form. */
function ordinalOf(set: string, pod: Pod): number | null {
  const match = /^(.*)-(0|[1-9][0-9]*)$/.exec(pod.metadata?.name ?? '');
  return match && match[1] === set ? Number(match[2]) : null;
}

function stepsOf(view: StatefulSetView, pods: readonly Pod[]): { create: Pod[]; delete: Pod[] } {
  const { set, now } = view;
  const name = set.metadata?.name ?? '';
  const start = set.spec?.ordinals?.start ?? 0;
  const end = start + (set.spec?.replicas ?? 1);
  const ordered = set.spec?.podManagementPolicy !== 'Parallel';
  const minReady = set.spec?.minReadySeconds ?? 0;
  const byOrdinal = new Map(pods.map((pod) => [ordinalOf(name, pod) ?? -1, pod]));
  const plan: { create: Pod[]; delete: Pod[] } = { create: [], delete: [] };
  const isDeleting = (pod: Pod) => pod.metadata?.deletionTimestamp !== undefined;
  const isHealthy = (pod: Pod) => !isDeleting(pod) && availableIn(pod, minReady, now) === 0;

  for (let ordinal = start; ordinal < end; ordinal++) {
    const pod = byOrdinal.get(ordinal);
    if (!pod) plan.create.push(podAt(view, ordinal));
    else if (!isDeleting(pod) && isFinished(pod)) {
      if ((view.pauseOf?.(pod) ?? 0) === 0) plan.delete.push(pod);
    } else if (isHealthy(pod)) continue;
    // The next pod waits until this one is ready.
    if (ordered) return plan;
  }
  const condemned = [...byOrdinal]
    .filter(([ordinal]) => ordinal < start || ordinal >= end)
    .sort(([a], [b]) => b - a)
    .map(([, pod]) => pod);
  // In order, an unhealthy pod blocks scaling down, unless all pods before it are healthy: the remaining pods are,
  // otherwise this code is not reached.
  const firstUnhealthy = condemned.findLast((pod) => !isHealthy(pod));
  for (const pod of condemned) {
    if (!isDeleting(pod) && (!ordered || isHealthy(pod) || pod === firstUnhealthy)) plan.delete.push(pod);
    if (ordered) return plan;
  }
  if (set.spec?.updateStrategy?.type === 'OnDelete' || plan.create.length + plan.delete.length > 0)
    return plan;
  const { partition = 0, maxUnavailable } = set.spec?.updateStrategy?.rollingUpdate ?? {};
  const limit = Math.max(1, resolvePercent(maxUnavailable ?? 1, end - start, true));
  let unavailable = 0;
  // From the last to the first; each waits for the one after it.
  for (let ordinal = end - 1; ordinal >= start + partition; ordinal--) {
    const pod = byOrdinal.get(ordinal);
    if (!pod) return plan;
    if (revisionLabel(pod) !== view.update.name) {
      if (!isDeleting(pod)) plan.delete.push(pod);
      unavailable++;
    } else if (!isHealthy(pod)) unavailable++;
    if (unavailable >= limit) return plan;
  }
  return plan;
}

function revisionLabel(pod: Pod): string {
  return pod.metadata?.labels?.[REVISION_LABEL] ?? '';
}

function podAt(view: StatefulSetView, ordinal: number): Pod {
  const { set } = view;
  const start = set.spec?.ordinals?.start ?? 0;
  const partition = set.spec?.updateStrategy?.rollingUpdate?.partition ?? 0;
  const rolling = set.spec?.updateStrategy?.type !== 'OnDelete';
  // A pod that is lost during a rollout is recreated with its old revision.
  const old = rolling
    ? partition > 0
      ? ordinal < start + partition
      : ordinal < start + (set.status?.currentReplicas ?? 0)
    : false;
  const revision = old ? view.current : view.update;
  const name = `${set.metadata?.name}-${ordinal}`;
  const pod = podFrom(revision.template, set, controllerReference(set, RESOURCES.statefulSets), {
    name,
    labels: {
      'statefulset.kubernetes.io/pod-name': name,
      'apps.kubernetes.io/pod-index': String(ordinal),
      [REVISION_LABEL]: revision.name,
    },
  });
  if (!pod.spec) return pod;
  const { serviceName } = set.spec ?? {};
  const named = {
    ...pod,
    spec: { ...pod.spec, hostname: name, ...(serviceName ? { subdomain: serviceName } : {}) },
  };
  return withClaimVolumes(set, ordinal, named);
}

function statusOf(view: StatefulSetView, pods: readonly Pod[]): NonNullable<StatefulSet['status']> {
  const { set, now } = view;
  const live = pods.filter((pod) => pod.metadata?.deletionTimestamp === undefined);
  const count = (test: (pod: Pod) => boolean) => live.filter(test).length;
  const minReady = set.spec?.minReadySeconds ?? 0;
  const replicas = pods.length;
  const readyReplicas = count(isReady);
  const updatedReplicas = count((pod) => revisionLabel(pod) === view.update.name);
  const wanted = set.spec?.replicas ?? 1;
  // The rollout is complete: the update revision becomes the current one.
  const complete =
    view.current.name !== view.update.name &&
    updatedReplicas === wanted &&
    readyReplicas === wanted &&
    replicas === wanted;
  const current = complete ? view.update.name : view.current.name;
  return {
    observedGeneration: set.metadata?.generation ?? 0,
    replicas,
    readyReplicas,
    availableReplicas: count((pod) => availableIn(pod, minReady, now) === 0),
    currentReplicas: count((pod) => revisionLabel(pod) === current),
    updatedReplicas,
    currentRevision: current,
    updateRevision: view.update.name,
    collisionCount: set.status?.collisionCount ?? 0,
  };
}

/** Returns a set's pods, with those that it may adopt; pods whose deletion the cache does not show yet are marked. */
function podsOf({ caches: { pods }, clock }: ControllerContext, set: StatefulSet): Pod[] {
  const orphans = pods
    .inNamespace(set.metadata?.namespace ?? '')
    .filter((pod) => !controllerOf(pod) && selects(set.spec?.selector, pod.metadata?.labels));
  return [...pods.controlledBy(set.metadata?.uid ?? ''), ...orphans].map((pod) =>
    pods.isDeleting(pod) && pod.metadata?.deletionTimestamp === undefined
      ? { ...pod, metadata: { ...pod.metadata, deletionTimestamp: new Date(clock.now()).toISOString() } }
      : pod,
  );
}

const claimInDeletion = (name = ''): FairleadError =>
  new FairleadError(`claim ${name} is being deleted`, {
    op: 'create claim',
    code: 'EBUSY',
    object: name,
    hint: 'it is created again when it is gone: kubectl describe pvc names what still uses it',
  });

/** Maintains StatefulSets: pods with stable names, in order. */
export function startStatefulSets(context: ControllerContext): void {
  const { caches, clock } = context;
  const { statefulSets, pods, controllerRevisions, persistentVolumeClaims: claims } = caches;
  const events = recorderFor(context, 'statefulset-controller');
  const backoff = createFailureBackoff(clock);
  const placeOf = (set: StatefulSet, pod: Pod) => `${set.metadata?.uid} ${pod.metadata?.name}`;

  const createClaims = async (set: StatefulSet, ordinal: number) => {
    for (const claim of claimsAt(set, ordinal)) {
      const existing = claims.get(claim.metadata?.namespace, claim.metadata?.name ?? '');
      if (existing?.metadata?.deletionTimestamp !== undefined) throw claimInDeletion(existing.metadata.name);
      if (existing) continue;
      const owners = claimOwners(set, claim, undefined, false);
      const owned = owners ? { ...claim, metadata: { ...claim.metadata, ownerReferences: owners } } : claim;
      const { name } = claim.metadata ?? {};
      const subject = `Claim ${name} Pod ${set.metadata?.name}-${ordinal} in StatefulSet ${set.metadata?.name}`;
      try {
        await claims.create(owned);
      } catch (error) {
        if (hasReason(error, 'AlreadyExists')) continue;
        const message = `create ${subject} failed error: ${messageOf(error)}`;
        events.event(set, 'Warning', 'FailedCreate', message, RESOURCES.statefulSets);
        throw error;
      }
      events.event(set, 'Normal', 'SuccessfulCreate', `create ${subject} success`, RESOURCES.statefulSets);
    }
  };
  /** Sets the owners of the claims of the set's pods according to its retention policy. */
  const keepClaims = async (set: StatefulSet) => {
    const templates = set.spec?.volumeClaimTemplates ?? [];
    if (templates.length === 0 || set.metadata?.deletionTimestamp !== undefined) return;
    const start = set.spec?.ordinals?.start ?? 0;
    const end = start + (set.spec?.replicas ?? 1);
    for (const pod of podsOf(context, set)) {
      const ordinal = ordinalOf(set.metadata?.name ?? '', pod);
      if (ordinal === null) continue;
      for (const { metadata } of templates) {
        const claim = claims.get(pod.metadata?.namespace, claimNameAt(metadata?.name ?? '', set, ordinal));
        if (!claim) continue;
        const owners = claimOwners(set, claim, pod, ordinal < start || ordinal >= end);
        if (owners === null) continue;
        const { uid, resourceVersion } = claim.metadata ?? {};
        await claims.patch(claim, 'merge', { metadata: { uid, resourceVersion, ownerReferences: owners } });
      }
    }
  };
  const queue = controllerQueue(context, 'statefulset', async (key) => {
    const { namespace, name } = splitKey(key);
    const set = statefulSets.get(namespace, name);
    if (!set) return;
    const revisions = controllerRevisions.controlledBy(set.metadata?.uid ?? '');
    const used = new Set(podsOf(context, set).map(revisionLabel));
    if (set.status?.currentRevision) used.add(set.status.currentRevision);
    const history = revisionHistory(set, RESOURCES.statefulSets, revisions, used);
    if (set.metadata?.deletionTimestamp === undefined) {
      if (history.isNew) await controllerRevisions.create(history.current);
      if (history.raiseTo !== null) {
        await controllerRevisions.patch(history.current, 'merge', { revision: history.raiseTo });
      }
      await all(history.outdated.map((revision) => controllerRevisions.delete(revision)));
    }
    const update = { name: history.current.metadata?.name ?? '', template: set.spec?.template };
    const past = revisions.find(
      (revision: ControllerRevision) => revision.metadata?.name === set.status?.currentRevision,
    );
    const current = past ? { name: past.metadata?.name ?? '', template: templateOf(past) } : update;
    const viewOf = (object: StatefulSet): StatefulSetView => ({
      set: object,
      pods: podsOf(context, object),
      current,
      update,
      now: clock.now(),
      pauseOf: (pod) => backoff.left(placeOf(object, pod), pod),
    });
    const plan = reconcileStatefulSet(viewOf(set));
    // Before pods are scaled down: their claims may have to be deleted with them.
    await keepClaims(set);
    await all([
      ...plan.adopt
        .filter((pod) => !controllerOf(pod))
        .map((pod) => pods.patch(pod, 'merge', adoption(pod, set, RESOURCES.statefulSets))),
      ...plan.release.map((pod) => pods.patch(pod, 'merge', release(pod, set))),
      ...plan.delete.map(async (pod) => {
        if (pod.status?.phase === 'Failed') backoff.replaced(placeOf(set, pod));
        await pods.delete(pod);
        const message = `delete Pod ${pod.metadata?.name} in StatefulSet ${name} successful`;
        events.event(set, 'Normal', 'SuccessfulDelete', message, RESOURCES.statefulSets);
      }),
      ...plan.create.map(async (pod) => {
        try {
          await createClaims(set, ordinalOf(name, pod) ?? 0);
          await pods.create(pod);
        } catch (error) {
          if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
            const message = `create Pod ${pod.metadata?.name} in StatefulSet ${name} failed error: ${messageOf(error)}`;
            events.event(set, 'Warning', 'FailedCreate', message, RESOURCES.statefulSets);
          }
          throw error;
        }
        const message = `create Pod ${pod.metadata?.name} in StatefulSet ${name} successful`;
        events.event(set, 'Normal', 'SuccessfulCreate', message, RESOURCES.statefulSets);
      }),
    ]);
    const latest = statefulSets.get(namespace, name);
    if (!latest || latest.metadata?.uid !== set.metadata?.uid) return;
    const after = reconcileStatefulSet(viewOf(latest));
    if (after.status) await statefulSets.updateStatus({ ...latest, status: after.status });
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });
  statefulSets.informer.handle({
    onAdd: (set) => queue.add(keyOf(set)),
    onUpdate: (set) => queue.add(keyOf(set)),
  });
  queueOwnersOfPods(statefulSets, pods, queue, ({ spec }) => spec?.selector);
}
