import { hasReason } from '../kube/client.ts';
import { selects } from '../kube/selector.ts';
import {
  type ControllerRevision,
  type DaemonSet,
  keyOf,
  type Node,
  type Pod,
  RESOURCES,
  splitKey,
  type Toleration,
} from '../kube/types.ts';
import { NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT } from '../kube/well-known-labels.ts';
import { messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from './context.ts';
import { resolvePercent } from './deployment-rollout.ts';
import { createFailureBackoff } from './failure-backoff.ts';
import { matchesNode } from './node-selection.ts';
import { adoption, claim, controllerOf, controllerReference, release } from './ownership.ts';
import { queueOwnersOfPods } from './pod-owners.ts';
import { availableIn, byDeletionRank, isFinished, isReady, podFrom } from './pods.ts';
import { REVISION_LABEL, revisionHistory } from './revision-history.ts';
import { nodeTaints, untolerated } from './taints.ts';

/** Tolerations of every pod of a DaemonSet (upstream's AddOrUpdateDaemonPodTolerations). */
const TOLERATIONS: readonly Toleration[] = [
  { key: NOT_READY_TAINT, operator: 'Exists', effect: 'NoExecute' },
  { key: UNREACHABLE_TAINT, operator: 'Exists', effect: 'NoExecute' },
  { key: 'node.kubernetes.io/disk-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/memory-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/pid-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: UNSCHEDULABLE_TAINT, operator: 'Exists', effect: 'NoSchedule' },
];

export interface DaemonSetView {
  readonly set: DaemonSet;
  readonly nodes: readonly Node[];
  /** Pods that it controls or selects, including those being deleted. */
  readonly pods: readonly Pod[];
  /** The hash label of pods with the current template. */
  readonly hash: string;
  readonly now: number;
  /** Milliseconds until a failed pod may be replaced. Absent: immediately. */
  readonly pauseOf?: (pod: Pod) => number;
}

export interface DaemonSetPlan {
  readonly adopt: readonly Pod[];
  readonly release: readonly Pod[];
  /** Pods to create, each pinned to its node. */
  readonly create: readonly Pod[];
  readonly delete: readonly Pod[];
  readonly status: NonNullable<DaemonSet['status']> | null;
  readonly checkAgainIn: number | null;
}

/** Computes the next step of a DaemonSet. Pure. */
export function reconcileDaemonSet(view: DaemonSetView): DaemonSetPlan {
  const { set, hash, now } = view;
  const { owned, adopt, release: toRelease } = claim(set, set.spec?.selector, view.pods);
  const pods = [...owned, ...adopt];
  const template = daemonPod(set, hash, null);
  const byNode = new Map<string, Pod[]>();
  for (const pod of pods) {
    const node = nodeOf(pod);
    const here = byNode.get(node);
    if (here) here.push(pod);
    else byNode.set(node, [pod]);
  }
  const create: Pod[] = [];
  const remove: Pod[] = [];
  const kept = new Map<string, Pod[]>();
  const waits: number[] = [];
  let desired = 0;
  let misscheduled = 0;
  for (const node of view.nodes) {
    const name = node.metadata?.name ?? '';
    const here = (byNode.get(name) ?? []).filter((pod) => pod.metadata?.deletionTimestamp === undefined);
    const { run, stay } = belongsOn(template, node);
    if (run) desired++;
    else if (here.some((pod) => !isFinished(pod))) misscheduled++;
    if (!run && !(stay && here.length > 0)) {
      remove.push(...here);
      byNode.delete(name);
      continue;
    }
    // A failed pod is deleted; the next reconcile creates its replacement.
    const finished = here.filter(isFinished);
    for (const pod of finished) {
      const pause = view.pauseOf?.(pod) ?? 0;
      if (pause > 0) waits.push(pause);
      else remove.push(pod);
    }
    const alive = here.filter((pod) => !isFinished(pod));
    const going = (byNode.get(name) ?? []).some(
      (pod) => pod.metadata?.deletionTimestamp !== undefined && !isFinished(pod),
    );
    byNode.delete(name);
    // As upstream: the next pod is created after the previous one is gone, so that host ports are free.
    if (run && alive.length === 0 && !going && !here.some(isFinished))
      create.push(daemonPod(set, hash, name));
    kept.set(name, alive);
  }
  // Pods of deleted nodes.
  for (const left of byNode.values())
    remove.push(...left.filter((pod) => pod.metadata?.deletionTimestamp === undefined));
  const rolled = rollingUpdate(view, kept, desired, create, remove);
  const alive = [...kept.values()].flat();
  const minReady = set.spec?.minReadySeconds ?? 0;
  const oneEach = [...kept.values()].flatMap((here) => here[0] ?? []);
  for (const pod of alive) {
    const wait = availableIn(pod, minReady, now);
    if (wait > 0 && Number.isFinite(wait)) waits.push(wait);
  }
  const available = oneEach.filter((pod) => availableIn(pod, minReady, now) === 0).length;
  const status = {
    currentNumberScheduled: oneEach.length,
    numberMisscheduled: misscheduled,
    desiredNumberScheduled: desired,
    numberReady: oneEach.filter(isReady).length,
    observedGeneration: set.metadata?.generation ?? 0,
    updatedNumberScheduled: oneEach.filter((pod) => pod.metadata?.labels?.[REVISION_LABEL] === hash).length,
    numberAvailable: available,
    numberUnavailable: desired - available,
  };
  const ending = set.metadata?.deletionTimestamp !== undefined;
  return {
    adopt,
    release: toRelease,
    create: ending ? [] : rolled.create,
    delete: ending ? [] : [...new Set(rolled.remove)],
    status: same(status, set.status) ? null : status,
    checkAgainIn: waits.length > 0 ? Math.min(...waits) : null,
  };
}

/**
 * Replaces pods of older templates, as many at a time as maxUnavailable and maxSurge allow; also removes surplus pods.
 */
function rollingUpdate(
  { set, hash, now }: DaemonSetView,
  kept: ReadonlyMap<string, readonly Pod[]>,
  desired: number,
  create: readonly Pod[],
  remove: readonly Pod[],
): { create: Pod[]; remove: Pod[] } {
  const result = { create: [...create], remove: [...remove] };
  const rolling = set.spec?.updateStrategy?.type !== 'OnDelete';
  const { maxSurge: surge, maxUnavailable: unavailable } = set.spec?.updateStrategy?.rollingUpdate ?? {};
  const maxSurge = rolling ? resolvePercent(surge ?? 0, desired, true) : 0;
  const maxUnavailable = maxSurge > 0 ? 0 : Math.max(1, resolvePercent(unavailable ?? 1, desired, true));
  const minReady = set.spec?.minReadySeconds ?? 0;
  const isAvailable = (pod: Pod) => availableIn(pod, minReady, now) === 0;
  const isNew = (pod: Pod) => pod.metadata?.labels?.[REVISION_LABEL] === hash;
  let missing = 0;
  let surging = 0;
  for (const here of kept.values()) {
    if (!here.some(isAvailable)) missing++;
    if (here.some(isNew) && here.some((pod) => !isNew(pod))) surging++;
  }
  for (const [node, here] of kept) {
    const fresh = here.filter(isNew);
    const old = here.filter((pod) => !isNew(pod));
    // Of several pods of one template, the least valuable are removed.
    if (fresh.length > 1) result.remove.push(...byDeletionRank(fresh).slice(0, -1));
    if (old.length > 1) result.remove.push(...byDeletionRank(old).slice(0, -1));
    const last = byDeletionRank(old).at(-1);
    if (!last) continue;
    if (fresh.length > 0) {
      if (fresh.some(isAvailable) || !isAvailable(last)) result.remove.push(last);
      continue;
    }
    if (!rolling) continue;
    if (!isAvailable(last)) result.remove.push(last);
    else if (maxSurge > surging) {
      surging++;
      result.create.push(daemonPod(set, hash, node));
    } else if (maxUnavailable > missing) {
      missing++;
      result.remove.push(last);
    }
  }
  return result;
}

/** Reports whether the pod should run on a node, and whether an existing one may stay. */
function belongsOn(pod: Pod, node: Node): { run: boolean; stay: boolean } {
  if (node.metadata?.deletionTimestamp !== undefined) return { run: false, stay: false };
  if (!matchesNode(pod, node)) return { run: false, stay: false };
  const tolerations = pod.spec?.tolerations ?? [];
  const taints = nodeTaints(node);
  return {
    run: !untolerated(taints, tolerations, ['NoSchedule', 'NoExecute']),
    stay: !untolerated(taints, tolerations, ['NoExecute']),
  };
}

/** Builds the pod of a set for a node: pinned by node affinity, so that the scheduler places it like any other pod. */
function daemonPod(set: DaemonSet, hash: string, node: string | null): Pod {
  const pod = podFrom(set.spec?.template, set, controllerReference(set, RESOURCES.daemonSets), {
    labels: { [REVISION_LABEL]: hash },
  });
  const spec = pod.spec;
  if (!spec) return pod;
  const network: Toleration[] = spec.hostNetwork
    ? [{ key: 'node.kubernetes.io/network-unavailable', operator: 'Exists', effect: 'NoSchedule' }]
    : [];
  const tolerations = [...(spec.tolerations ?? []), ...TOLERATIONS, ...network];
  if (node === null) return { ...pod, spec: { ...spec, tolerations } };
  const field = { key: 'metadata.name', operator: 'In', values: [node] };
  const affinity = spec.affinity?.nodeAffinity;
  const terms = affinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  const nodeSelectorTerms = terms
    ? terms.map((term) => ({ ...term, matchFields: [field] }))
    : [{ matchFields: [field] }];
  return {
    ...pod,
    spec: {
      ...spec,
      tolerations,
      affinity: {
        ...spec.affinity,
        nodeAffinity: { ...affinity, requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } },
      },
    },
  };
}

/** Returns the node to which a pod is bound or pinned. */
function nodeOf(pod: Pod): string {
  if (pod.spec?.nodeName) return pod.spec.nodeName;
  const required = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  const field = required?.nodeSelectorTerms[0]?.matchFields?.find(({ key }) => key === 'metadata.name');
  return field?.values?.[0] ?? '';
}

/** Keeps one pod of each DaemonSet on each node that it matches. */
export function startDaemonSets(context: ControllerContext): void {
  const { caches, clock } = context;
  const { daemonSets, pods, nodes, controllerRevisions } = caches;
  const events = recorderFor(context, 'daemonset-controller');
  const backoff = createFailureBackoff(clock);
  const placeOf = (set: DaemonSet, pod: Pod) => `${set.metadata?.uid} ${nodeOf(pod)}`;

  const revisionsOf = (set: DaemonSet): ControllerRevision[] =>
    controllerRevisions.controlledBy(set.metadata?.uid ?? '');
  const viewOf = (set: DaemonSet, hash: string): DaemonSetView => {
    const orphans = pods
      .inNamespace(set.metadata?.namespace ?? '')
      .filter((pod) => !controllerOf(pod) && selects(set.spec?.selector, pod.metadata?.labels));
    return {
      set,
      nodes: nodes.informer.list(),
      pods: [...pods.controlledBy(set.metadata?.uid ?? ''), ...orphans].map((pod) =>
        pods.isDeleting(pod) && pod.metadata?.deletionTimestamp === undefined
          ? { ...pod, metadata: { ...pod.metadata, deletionTimestamp: new Date(clock.now()).toISOString() } }
          : pod,
      ),
      hash,
      now: clock.now(),
      pauseOf: (pod) => backoff.left(placeOf(set, pod), pod),
    };
  };
  const queue = controllerQueue(context, 'daemonset', async (key) => {
    const { namespace, name } = splitKey(key);
    const set = daemonSets.get(namespace, name);
    if (!set) return;
    const used = new Set(
      pods
        .controlledBy(set.metadata?.uid ?? '')
        .map(({ metadata }) => `${name}-${metadata?.labels?.[REVISION_LABEL] ?? ''}`),
    );
    const history = revisionHistory(set, RESOURCES.daemonSets, revisionsOf(set), used);
    const ending = set.metadata?.deletionTimestamp !== undefined;
    if (!ending) {
      if (history.isNew) await controllerRevisions.create(history.current);
      if (history.raiseTo !== null) {
        await controllerRevisions.patch(history.current, 'merge', { revision: history.raiseTo });
      }
      await all(history.outdated.map((revision) => controllerRevisions.delete(revision)));
    }
    const hash = history.current.metadata?.labels?.[REVISION_LABEL] ?? '';
    const plan = reconcileDaemonSet(viewOf(set, hash));
    await all([
      ...plan.adopt.map((pod) => pods.patch(pod, 'merge', adoption(pod, set, RESOURCES.daemonSets))),
      ...plan.release.map((pod) => pods.patch(pod, 'merge', release(pod, set))),
      ...plan.delete.map(async (pod) => {
        if (pod.status?.phase === 'Failed') backoff.replaced(placeOf(set, pod));
        await pods.delete(pod);
        const message = `Deleted pod: ${pod.metadata?.name}`;
        events.event(set, 'Normal', 'SuccessfulDelete', message, RESOURCES.daemonSets);
      }),
      ...plan.create.map(async (pod) => {
        try {
          const made = await pods.create(pod);
          const message = `Created pod: ${made.metadata?.name}`;
          events.event(set, 'Normal', 'SuccessfulCreate', message, RESOURCES.daemonSets);
        } catch (error) {
          if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
            const message = `Error creating: ${messageOf(error)}`;
            events.event(set, 'Warning', 'FailedCreate', message, RESOURCES.daemonSets);
          }
          throw error;
        }
      }),
    ]);
    const current = daemonSets.get(namespace, name);
    if (!current || current.metadata?.uid !== set.metadata?.uid) return;
    const after = reconcileDaemonSet(viewOf(current, hash));
    if (after.status) await daemonSets.updateStatus({ ...current, status: after.status });
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });
  daemonSets.informer.handle({
    onAdd: (set) => queue.add(keyOf(set)),
    onUpdate: (set) => queue.add(keyOf(set)),
  });
  queueOwnersOfPods(daemonSets, pods, queue, ({ spec }) => spec?.selector);
  const everySet = () => {
    for (const set of daemonSets.informer.list()) queue.add(keyOf(set));
  };
  nodes.informer.handle({
    onAdd: everySet,
    onDelete: everySet,
    onUpdate(node, before) {
      const relevant = (object: Node) => JSON.stringify([object.metadata?.labels, nodeTaints(object)]);
      if (relevant(node) !== relevant(before)) everySet();
    },
  });
}
