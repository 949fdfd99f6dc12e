import { hasReason } from '../kube/client.ts';
import { selects } from '../kube/selector.ts';
import {
  type Deployment,
  keyOf,
  type PodTemplateSpec,
  RESOURCES,
  type ReplicaSet,
  splitKey,
} from '../kube/types.ts';
import { LAST_APPLIED_ANNOTATION } from '../kube/well-known-labels.ts';
import { messageOf } from '../lib/errors.ts';
import { canonical, hashOf, same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import {
  DESIRED_REPLICAS,
  MAX_REPLICAS,
  outdated,
  proportionalStep,
  REVISION,
  REVISION_HISTORY,
  recreateStep,
  replicasOf,
  revisionOf,
  rollingLimits,
  rollingStep,
  type Sizes,
} from './deployment-rollout.ts';
import { deploymentStatus } from './deployment-status.ts';
import { adoption, claim, controllerOf, controllerReference, release } from './ownership.ts';
import { timeOf } from './pods.ts';

const HASH_LABEL = 'pod-template-hash';

export interface DeploymentView {
  readonly deployment: Deployment;
  /** ReplicaSets of the namespace that it controls or that its selector matches. */
  readonly sets: readonly ReplicaSet[];
  /** Number of pods of its ReplicaSets that are neither finished nor gone, by the ReplicaSet's uid. */
  readonly runningPods: ReadonlyMap<string, number>;
}

export interface DeploymentPlan {
  readonly adopt: readonly ReplicaSet[];
  readonly release: readonly ReplicaSet[];
  readonly create: ReplicaSet | null;
  /** Merge patches: size, annotations, minReadySeconds. */
  readonly patch: readonly {
    readonly set: ReplicaSet;
    readonly patch: object;
    readonly from: number;
    readonly to: number;
  }[];
  readonly delete: readonly ReplicaSet[];
  /** The revision to record in the Deployment, or null. */
  readonly revision: string | null;
  readonly fresh: ReplicaSet | null;
  readonly old: readonly ReplicaSet[];
}

/** Computes the next step of a Deployment and its ReplicaSets. Pure. */
export function reconcileDeployment(view: DeploymentView): DeploymentPlan {
  const { deployment } = view;
  const { owned, adopt, release: toRelease } = claim(deployment, deployment.spec?.selector, view.sets);
  const fresh = newSetOf(deployment, owned);
  const old = owned.filter((set) => set !== fresh && set.metadata?.deletionTimestamp === undefined);
  const nothing = {
    adopt,
    release: toRelease,
    create: null,
    patch: [],
    delete: [],
    revision: null,
    fresh,
    old,
  };
  // A ReplicaSet to adopt may be the new one: everything else waits until the server confirms the adoption.
  if (deployment.metadata?.deletionTimestamp !== undefined || adopt.length > 0) return nothing;

  let newest = 0n;
  for (const revision of old.map(revisionOf)) if (revision > newest) newest = revision;
  const revision = fresh && revisionOf(fresh) > newest ? revisionOf(fresh) : newest + 1n;
  const paused = deployment.spec?.paused === true;
  const oldPods = old.reduce((sum, set) => sum + (view.runningPods.get(set.metadata?.uid ?? '') ?? 0), 0);
  const steps = sizesOf(deployment, fresh, old, oldPods);
  const create = !fresh && !paused && steps.mayCreate ? newReplicaSet(deployment, old, revision) : null;
  const patches = [];
  for (const set of fresh ? [fresh, ...old] : old) {
    const to = steps.sizes.get(set) ?? replicasOf(set);
    const patch = patchOf(deployment, set, set === fresh && !paused ? revision : null, to);
    if (patch) patches.push({ set, patch, from: replicasOf(set), to });
  }
  const noted = fresh && !paused ? String(revision) : create ? String(revision) : null;
  return {
    ...nothing,
    create,
    patch: patches,
    delete: paused ? [] : outdated(deployment, old),
    revision: noted !== null && deployment.metadata?.annotations?.[REVISION] !== noted ? noted : null,
  };
}

function sizesOf(
  deployment: Deployment,
  fresh: ReplicaSet | null,
  old: readonly ReplicaSet[],
  oldPods: number,
): { sizes: Sizes; mayCreate: boolean } {
  const wanted = deployment.spec?.replicas ?? 1;
  const sets = fresh ? [fresh, ...old] : old;
  const scaled = sets.some((set) => {
    const desired = set.metadata?.annotations?.[DESIRED_REPLICAS];
    return replicasOf(set) > 0 && desired !== undefined && Number(desired) !== wanted;
  });
  if (deployment.spec?.paused || scaled) {
    // The rollout continues after the new number is recorded in the ReplicaSets.
    return { sizes: proportionalStep(deployment, fresh, old), mayCreate: false };
  }
  if (deployment.spec?.strategy?.type === 'Recreate') return recreateStep(deployment, fresh, old, oldPods);
  return { sizes: fresh ? rollingStep(deployment, fresh, old) : new Map(), mayCreate: true };
}

/** Returns the ReplicaSet with the Deployment's template; the oldest of several. */
function newSetOf(deployment: Deployment, sets: readonly ReplicaSet[]): ReplicaSet | null {
  const wanted = canonical(withoutHash(deployment.spec?.template));
  const found = sets.filter((set) => canonical(withoutHash(set.spec?.template)) === wanted);
  found.sort((a, b) => timeOf(a.metadata?.creationTimestamp) - timeOf(b.metadata?.creationTimestamp));
  return found[0] ?? null;
}

function withoutHash(template: PodTemplateSpec | undefined) {
  const { [HASH_LABEL]: _hash, ...labels } = template?.metadata?.labels ?? {};
  return { metadata: { ...template?.metadata, labels, creationTimestamp: undefined }, spec: template?.spec };
}

/** Returns the Deployment's annotations that its ReplicaSets also have (change-cause for `rollout history`). */
function copiedAnnotations(deployment: Deployment): Record<string, string> {
  const skipped = [LAST_APPLIED_ANNOTATION, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS];
  return Object.fromEntries(
    Object.entries(deployment.metadata?.annotations ?? {}).filter(([key]) => !skipped.includes(key)),
  );
}

function sizeAnnotations(deployment: Deployment): Record<string, string> {
  const replicas = deployment.spec?.replicas ?? 1;
  return {
    [DESIRED_REPLICAS]: String(replicas),
    [MAX_REPLICAS]: String(replicas + rollingLimits(deployment).maxSurge),
  };
}

function newReplicaSet(deployment: Deployment, old: readonly ReplicaSet[], revision: bigint): ReplicaSet {
  const template = deployment.spec?.template;
  const hash = hashOf(withoutHash(template), deployment.status?.collisionCount ?? 0);
  const labels = { ...template?.metadata?.labels, [HASH_LABEL]: hash };
  const wanted = deployment.spec?.replicas ?? 1;
  const existing = old.reduce((sum, set) => sum + replicasOf(set), 0);
  const room = wanted + rollingLimits(deployment).maxSurge - existing;
  const { namespace } = deployment.metadata ?? {};
  const { minReadySeconds } = deployment.spec ?? {};
  return {
    metadata: {
      name: `${deployment.metadata?.name}-${hash}`,
      ...(namespace ? { namespace } : {}),
      labels,
      annotations: {
        ...copiedAnnotations(deployment),
        ...sizeAnnotations(deployment),
        [REVISION]: String(revision),
      },
      ownerReferences: [controllerReference(deployment, RESOURCES.deployments)],
    },
    spec: {
      replicas: Math.max(0, Math.min(wanted, room)),
      ...(minReadySeconds ? { minReadySeconds } : {}),
      selector: {
        ...deployment.spec?.selector,
        matchLabels: { ...deployment.spec?.selector.matchLabels, [HASH_LABEL]: hash },
      },
      template: { ...template, metadata: { ...template?.metadata, labels } },
    },
  };
}

function patchOf(deployment: Deployment, set: ReplicaSet, revision: bigint | null, replicas: number) {
  const before = set.metadata?.annotations ?? {};
  // Annotations of old ReplicaSets are preserved: `rollout history` reads their change-cause.
  const active = replicas > 0 || replicasOf(set) > 0 || revision !== null;
  const wanted: Record<string, string> = {
    ...(revision === null ? {} : copiedAnnotations(deployment)),
    ...(active ? sizeAnnotations(deployment) : {}),
  };
  if (revision !== null && before[REVISION] !== String(revision)) {
    wanted[REVISION] = String(revision);
    const past = before[REVISION];
    if (past) {
      wanted[REVISION_HISTORY] = [before[REVISION_HISTORY], past].filter(Boolean).join(',');
    }
  }
  const annotations = Object.fromEntries(
    Object.entries(wanted).filter(([key, value]) => before[key] !== value),
  );
  const minReady = deployment.spec?.minReadySeconds ?? 0;
  const spec = {
    ...(replicas === replicasOf(set) ? {} : { replicas }),
    ...(revision !== null && (set.spec?.minReadySeconds ?? 0) !== minReady
      ? { minReadySeconds: minReady }
      : {}),
  };
  if (Object.keys(annotations).length === 0 && Object.keys(spec).length === 0) return null;
  return { metadata: { resourceVersion: set.metadata?.resourceVersion, annotations }, spec };
}

/** Gathers a Deployment's ReplicaSets, with those that it may adopt, and the number of pods that each runs. */
function viewOf({ replicaSets, pods }: ControllerContext['caches'], deployment: Deployment): DeploymentView {
  const sets = new Set(replicaSets.controlledBy(deployment.metadata?.uid ?? ''));
  for (const set of replicaSets.inNamespace(deployment.metadata?.namespace ?? '')) {
    if (!controllerOf(set) && selects(deployment.spec?.selector, set.metadata?.labels)) sets.add(set);
  }
  const runningPods = new Map<string, number>();
  for (const { metadata } of sets) {
    const running = pods
      .controlledBy(metadata?.uid ?? '')
      .filter(({ status }) => status?.phase !== 'Succeeded' && status?.phase !== 'Failed');
    runningPods.set(metadata?.uid ?? '', running.length);
  }
  return { deployment, sets: [...sets].filter((set) => !replicaSets.isDeleting(set)), runningPods };
}

/** Rolls Deployments out. */
export function startDeployments(context: ControllerContext): void {
  const { caches, clock } = context;
  const { deployments, replicaSets, pods } = caches;
  const events = recorderFor(context, 'deployment-controller');
  const recordEvent = (deployment: Deployment, reason: string, message: string) =>
    events.event(deployment, 'Normal', reason, message, RESOURCES.deployments);

  const execute = async (deployment: Deployment, plan: DeploymentPlan): Promise<string | null> => {
    let created: string | null = null;
    await all([
      ...plan.adopt.map((set) =>
        replicaSets.patch(set, 'merge', adoption(set, deployment, RESOURCES.deployments)),
      ),
      ...plan.release.map((set) => replicaSets.patch(set, 'merge', release(set, deployment))),
      ...plan.delete.map((set) => replicaSets.delete(set, { propagationPolicy: 'Background' })),
      ...plan.patch.map(async ({ set, patch, from, to }) => {
        await replicaSets.patch(set, 'merge', patch);
        if (from === to) return;
        const way = to > from ? 'up' : 'down';
        const text = `Scaled ${way} replica set ${set.metadata?.name} from ${from} to ${to}`;
        recordEvent(deployment, 'ScalingReplicaSet', text);
      }),
      (async () => {
        if (!plan.create) return;
        created = await createSet(deployment, plan.create);
      })(),
    ]);
    if (plan.revision !== null) {
      await deployments.patch(deployment, 'merge', {
        metadata: { annotations: { [REVISION]: plan.revision } },
      });
    }
    return created;
  };
  const createSet = async (deployment: Deployment, set: ReplicaSet): Promise<string | null> => {
    try {
      const created = await replicaSets.create(set);
      const name = created.metadata?.name ?? '';
      recordEvent(
        deployment,
        'ScalingReplicaSet',
        `Scaled up replica set ${name} from 0 to ${replicasOf(created)}`,
      );
      return name;
    } catch (error) {
      if (!hasReason(error, 'AlreadyExists')) {
        if (!hasReason(error, 'NotFound', 'Conflict')) {
          events.event(
            deployment,
            'Warning',
            'ReplicaSetCreateError',
            `Failed to create new replica set "${set.metadata?.name}": ${messageOf(error)}`,
            RESOURCES.deployments,
          );
        }
        throw error;
      }
      // Our own ReplicaSet, not yet in the cache, or another of the same name: the next name differs.
      const { name = '', namespace } = set.metadata ?? {};
      const existing = await context.client.get(RESOURCES.replicaSets, name, namespace);
      replicaSets.informer.record(existing);
      if (controllerOf(existing)?.uid === deployment.metadata?.uid) return null;
      const collisionCount = (deployment.status?.collisionCount ?? 0) + 1;
      await deployments.updateStatus({ ...deployment, status: { ...deployment.status, collisionCount } });
      throw error;
    }
  };

  const queue = controllerQueue(context, 'deployment', async (key) => {
    const { namespace, name } = splitKey(key);
    const deployment = deployments.get(namespace, name);
    if (!deployment) return;
    const created = await execute(deployment, reconcileDeployment(viewOf(caches, deployment)));
    const current = deployments.get(namespace, name);
    if (!current || current.metadata?.uid !== deployment.metadata?.uid) return;
    if (current.metadata?.deletionTimestamp !== undefined) return;
    const { fresh, old } = reconcileDeployment(viewOf(caches, current));
    const view = { deployment: current, fresh, old, createdSet: created, now: clock.now() };
    const { status, checkAgainIn } = deploymentStatus(view);
    if (!same(status, current.status)) await deployments.updateStatus({ ...current, status });
    if (checkAgainIn !== null) queue.addAfter(key, checkAgainIn);
  });

  deployments.informer.handle({
    onAdd: (deployment) => queue.add(keyOf(deployment)),
    onUpdate: (deployment) => queue.add(keyOf(deployment)),
  });
  const setChanged = (set: ReplicaSet) => {
    const namespace = set.metadata?.namespace ?? '';
    const controller = controllerOf(set);
    if (controller) {
      if (controller.kind === 'Deployment') queue.add(`${namespace}/${controller.name}`);
      return;
    }
    for (const deployment of deployments.inNamespace(namespace)) {
      if (selects(deployment.spec?.selector, set.metadata?.labels)) queue.add(keyOf(deployment));
    }
  };
  replicaSets.informer.handle({
    onAdd: setChanged,
    onUpdate(set, before) {
      setChanged(set);
      if (controllerOf(before)?.uid !== controllerOf(set)?.uid) setChanged(before);
    },
    onDelete: setChanged,
  });
  // Recreate waits for the last old pod.
  pods.informer.handle({
    onDelete(pod) {
      const controller = controllerOf(pod);
      if (controller?.kind !== 'ReplicaSet') return;
      const set = replicaSets.get(pod.metadata?.namespace, controller.name);
      if (set) setChanged(set);
    },
  });
}
