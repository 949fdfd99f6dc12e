import { timestamp } from '../kube/timestamp.ts';
import type { Deployment, DeploymentCondition, ReplicaSet } from '../kube/types.ts';
import { replicasOf, rollingLimits } from './deployment-rollout.ts';
import { timeOf } from './pods.ts';

type Status = NonNullable<Deployment['status']>;

export interface StatusView {
  readonly deployment: Deployment;
  readonly fresh: ReplicaSet | null;
  readonly old: readonly ReplicaSet[];
  /** The changes of this reconcile, which explain progress. */
  readonly createdSet: string | null;
  readonly now: number;
}

/** Computes the status that `kubectl rollout status` reads, and the time of the next check of the progress deadline. */
export function deploymentStatus(view: StatusView): { status: Status; checkAgainIn: number | null } {
  const { deployment, fresh, old, now } = view;
  const sets = fresh ? [fresh, ...old] : [...old];
  const sum = (read: (set: ReplicaSet) => number | undefined) =>
    sets.reduce((total, set) => total + (read(set) ?? 0), 0);
  const total = sum(({ status }) => status?.replicas);
  const ready = sum(({ status }) => status?.readyReplicas);
  const available = sum(({ status }) => status?.availableReplicas);
  const wanted = deployment.spec?.replicas ?? 1;
  const desired = sum(replicasOf);
  const counts = {
    observedGeneration: deployment.metadata?.generation ?? 0,
    replicas: total,
    updatedReplicas: fresh?.status?.replicas ?? 0,
    readyReplicas: ready,
    availableReplicas: available,
    unavailableReplicas: Math.max(0, desired - available),
    ...(deployment.status?.collisionCount === undefined
      ? {}
      : { collisionCount: deployment.status.collisionCount }),
  };
  const conditions: DeploymentCondition[] = [];
  const known = deployment.status?.conditions ?? [];
  const put = (type: string, status: string, reason: string, message: string, progress = false) => {
    const before = known.find((condition) => condition.type === type);
    const unchanged = before?.status === status && before.reason === reason;
    conditions.push({
      type,
      status,
      reason,
      message,
      lastUpdateTime:
        before && unchanged && !progress ? (before.lastUpdateTime ?? timestamp(now)) : timestamp(now),
      lastTransitionTime:
        before?.status === status ? (before.lastTransitionTime ?? timestamp(now)) : timestamp(now),
    });
  };

  if (available >= wanted - rollingLimits(deployment).maxUnavailable) {
    put('Available', 'True', 'MinimumReplicasAvailable', 'Deployment has minimum availability.');
  } else {
    put('Available', 'False', 'MinimumReplicasUnavailable', 'Deployment does not have minimum availability.');
  }
  const failure = (fresh ? [fresh] : sets).flatMap(({ status }) => status?.conditions ?? [])[0];
  if (failure?.type === 'ReplicaFailure') {
    put('ReplicaFailure', failure.status, failure.reason ?? '', failure.message ?? '');
  }
  const checkAgainIn = putProgress(view, counts, put, conditions);
  return { status: { ...counts, conditions }, checkAgainIn };
}

type Put = (type: string, status: string, reason: string, message: string, progress?: boolean) => void;

/** Sets the Progressing condition; returns the end of its deadline. */
function putProgress(view: StatusView, counts: Status, put: Put, conditions: DeploymentCondition[]) {
  const { deployment, fresh, now } = view;
  const before = deployment.status?.conditions?.find(({ type }) => type === 'Progressing');
  const deadline = deployment.spec?.progressDeadlineSeconds;
  const name = deployment.metadata?.name ?? '';
  const subject = fresh ? `ReplicaSet "${fresh.metadata?.name ?? ''}"` : `Deployment "${name}"`;
  // 2^31-1 means: no deadline (upstream).
  if (deadline === undefined || deadline === 2_147_483_647) return null;
  if (deployment.spec?.paused) {
    if (before?.reason === 'DeploymentPaused') conditions.push(before);
    else put('Progressing', 'Unknown', 'DeploymentPaused', 'Deployment is paused', true);
    return null;
  }
  const wanted = deployment.spec?.replicas ?? 1;
  const complete =
    fresh !== null &&
    counts.updatedReplicas === wanted &&
    counts.replicas === wanted &&
    counts.availableReplicas === wanted;
  if (complete) {
    const message = `${subject} has successfully progressed.`;
    if (before?.reason === 'NewReplicaSetAvailable' && before.message === message) conditions.push(before);
    else put('Progressing', 'True', 'NewReplicaSetAvailable', message);
    return null;
  }
  const last = deployment.status;
  const progressed =
    (counts.updatedReplicas ?? 0) > (last?.updatedReplicas ?? 0) ||
    (counts.replicas ?? 0) - (counts.updatedReplicas ?? 0) <
      (last?.replicas ?? 0) - (last?.updatedReplicas ?? 0) ||
    (counts.readyReplicas ?? 0) > (last?.readyReplicas ?? 0) ||
    (counts.availableReplicas ?? 0) > (last?.availableReplicas ?? 0);
  if (view.createdSet !== null) {
    const reason = 'NewReplicaSetCreated';
    put('Progressing', 'True', reason, `Created new replica set "${view.createdSet}"`, true);
    return deadline * 1000;
  }
  // A complete rollout that later loses pods keeps its condition.
  if (before?.reason === 'NewReplicaSetAvailable' && !changedTemplate(view)) {
    conditions.push(before);
    return null;
  }
  if (before?.reason === 'DeploymentPaused') {
    put('Progressing', 'Unknown', 'DeploymentResumed', 'Deployment is resumed', true);
    return deadline * 1000;
  }
  if (progressed || !before || before.reason === 'NewReplicaSetAvailable') {
    put('Progressing', 'True', 'ReplicaSetUpdated', `${subject} is progressing.`, true);
    return deadline * 1000;
  }
  const left = timeOf(before.lastUpdateTime) + deadline * 1000 - now;
  if (before.reason === 'ProgressDeadlineExceeded') conditions.push(before);
  else if (left <= 0) {
    put('Progressing', 'False', 'ProgressDeadlineExceeded', `${subject} has timed out progressing.`);
  } else conditions.push(before);
  // One second more: timestamps are whole seconds.
  return left > 0 ? left + 1000 : null;
}

/** Reports whether old pods are still being replaced: a rollout is in progress. */
function changedTemplate({ deployment, fresh, old }: StatusView): boolean {
  return (
    old.some((set) => replicasOf(set) > 0) ||
    (fresh !== null && replicasOf(fresh) !== (deployment.spec?.replicas ?? 1))
  );
}
