import type { Deployment, ReplicaSet } from '../kube/types.ts';
import { timeOf } from './pods.ts';

export const REVISION = 'deployment.kubernetes.io/revision';
export const REVISION_HISTORY = 'deployment.kubernetes.io/revision-history';
export const DESIRED_REPLICAS = 'deployment.kubernetes.io/desired-replicas';
export const MAX_REPLICAS = 'deployment.kubernetes.io/max-replicas';

export function replicasOf(set: ReplicaSet): number {
  return set.spec?.replicas ?? 1;
}

/** Returns the revision of a ReplicaSet: a 64-bit number, as upstream's; 0 if absent. */
export function revisionOf({ metadata }: Deployment | ReplicaSet): bigint {
  const text = metadata?.annotations?.[REVISION] ?? '';
  return /^[0-9]{1,19}$/.test(text) ? BigInt(text) : 0n;
}

function compareRevisions(a: ReplicaSet, b: ReplicaSet): number {
  const [left, right] = [revisionOf(a), revisionOf(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Converts "25%" of `total`, rounded as requested, or returns the number itself. */
export function resolvePercent(value: string | number | undefined, total: number, roundUp: boolean): number {
  if (typeof value === 'number') return value;
  const percent = /^([0-9]+)%$/.exec(value ?? '')?.[1];
  if (percent === undefined) return 0;
  const exact = (Number(percent) * total) / 100;
  return roundUp ? Math.ceil(exact) : Math.floor(exact);
}

/** Returns how many pods a rolling update may have above and below the wanted number. */
export function rollingLimits(deployment: Deployment): { maxSurge: number; maxUnavailable: number } {
  const replicas = deployment.spec?.replicas ?? 1;
  if (deployment.spec?.strategy?.type === 'Recreate') return { maxSurge: 0, maxUnavailable: replicas };
  const rolling = deployment.spec?.strategy?.rollingUpdate;
  const maxSurge = resolvePercent(rolling?.maxSurge ?? '25%', replicas, true);
  const maxUnavailable = resolvePercent(rolling?.maxUnavailable ?? '25%', replicas, false);
  // With both zero, a rollout could not proceed: one pod may be missing (upstream's ResolveFenceposts).
  return {
    maxSurge,
    maxUnavailable: maxSurge === 0 && maxUnavailable === 0 ? 1 : Math.min(maxUnavailable, replicas),
  };
}

/** Changes of ReplicaSets' sizes. */
export type Sizes = Map<ReplicaSet, number>;

/** Computes the next step of a rolling update: the new ReplicaSet grows first, then the old ones shrink. */
export function rollingStep(deployment: Deployment, fresh: ReplicaSet, old: readonly ReplicaSet[]): Sizes {
  const sizes: Sizes = new Map();
  const wanted = deployment.spec?.replicas ?? 1;
  const { maxSurge, maxUnavailable } = rollingLimits(deployment);
  const total = [fresh, ...old].reduce((sum, set) => sum + replicasOf(set), 0);
  const current = replicasOf(fresh);
  if (current > wanted) {
    sizes.set(fresh, wanted);
    return sizes;
  }
  if (current < wanted) {
    const room = wanted + maxSurge - total;
    if (room > 0) {
      sizes.set(fresh, current + Math.min(room, wanted - current));
      return sizes;
    }
  }
  const oldTotal = total - current;
  if (oldTotal === 0) return sizes;
  const leastAvailable = wanted - maxUnavailable;
  const freshUnavailable = current - (fresh.status?.availableReplicas ?? 0);
  let removable = total - leastAvailable - freshUnavailable;
  if (removable <= 0) return sizes;
  const oldestFirst = [...old].sort(byAge);
  const left = new Map(oldestFirst.map((set) => [set, replicasOf(set)]));
  // Unavailable pods of old ReplicaSets are removed first: they serve no client.
  for (const set of oldestFirst) {
    if (removable <= 0) break;
    const unhealthy = replicasOf(set) - (set.status?.availableReplicas ?? 0);
    const step = Math.min(removable, Math.max(0, unhealthy), left.get(set) ?? 0);
    left.set(set, (left.get(set) ?? 0) - step);
    removable -= step;
  }
  const available = [fresh, ...old].reduce((sum, set) => sum + (set.status?.availableReplicas ?? 0), 0);
  let spare = available - leastAvailable;
  for (const set of oldestFirst) {
    if (spare <= 0) break;
    const step = Math.min(spare, left.get(set) ?? 0);
    left.set(set, (left.get(set) ?? 0) - step);
    spare -= step;
  }
  for (const [set, size] of left) if (size !== replicasOf(set)) sizes.set(set, size);
  return sizes;
}

/** Recreate: no new pods before the last old pod is gone. `oldPods`: pods of old ReplicaSets that still run. */
export function recreateStep(
  deployment: Deployment,
  fresh: ReplicaSet | null,
  old: readonly ReplicaSet[],
  oldPods: number,
): { sizes: Sizes; mayCreate: boolean } {
  const sizes: Sizes = new Map();
  for (const set of old) if (replicasOf(set) > 0) sizes.set(set, 0);
  if (sizes.size > 0 || oldPods > 0) return { sizes, mayCreate: false };
  const wanted = deployment.spec?.replicas ?? 1;
  if (fresh && replicasOf(fresh) !== wanted) sizes.set(fresh, wanted);
  return { sizes, mayCreate: true };
}

/**
 * Scales in the middle of a rollout, or while paused: each ReplicaSet gets its share, the largest one the rounding
 * remainder (upstream's proportional scaling).
 */
export function proportionalStep(
  deployment: Deployment,
  fresh: ReplicaSet | null,
  old: readonly ReplicaSet[],
): Sizes {
  const sizes: Sizes = new Map();
  const wanted = deployment.spec?.replicas ?? 1;
  const active = [...(fresh ? [fresh] : []), ...old].filter((set) => replicasOf(set) > 0);
  const only = active.length === 1 ? active[0] : active.length === 0 ? (fresh ?? newest(old)) : undefined;
  if (only) {
    if (replicasOf(only) !== wanted) sizes.set(only, wanted);
    return sizes;
  }
  // The new ReplicaSet is complete: the rolling update does the rest.
  if (active.length === 0) return sizes;
  if (fresh && replicasOf(fresh) === wanted && (fresh.status?.availableReplicas ?? 0) === wanted) {
    for (const set of old) if (replicasOf(set) > 0) sizes.set(set, 0);
    return sizes;
  }
  const total = active.reduce((sum, set) => sum + replicasOf(set), 0);
  const { maxSurge } = rollingLimits(deployment);
  const allowed = wanted > 0 ? wanted + (deployment.spec?.strategy?.type === 'Recreate' ? 0 : maxSurge) : 0;
  const toAdd = allowed - total;
  const sorted = [...active].sort((a, b) => replicasOf(b) - replicasOf(a) || byAge(b, a));
  let added = 0;
  for (const set of sorted) {
    const before = Number(set.metadata?.annotations?.[MAX_REPLICAS] ?? 0) || allowed;
    const share = Math.round((replicasOf(set) * allowed) / before) - replicasOf(set);
    const left = toAdd - added;
    const step = toAdd > 0 ? Math.min(Math.max(share, 0), left) : Math.max(Math.min(share, 0), left);
    sizes.set(set, replicasOf(set) + step);
    added += step;
  }
  const largest = sorted[0];
  if (largest) sizes.set(largest, Math.max(0, (sizes.get(largest) ?? 0) + toAdd - added));
  for (const [set, size] of [...sizes]) if (size === replicasOf(set)) sizes.delete(set);
  return sizes;
}

/** Returns old ReplicaSets beyond the history limit, oldest first. */
export function outdated(deployment: Deployment, old: readonly ReplicaSet[]): ReplicaSet[] {
  const idle = old.filter(
    (set) =>
      replicasOf(set) === 0 &&
      (set.status?.replicas ?? 0) === 0 &&
      set.metadata?.deletionTimestamp === undefined &&
      (set.metadata?.generation ?? 0) <= (set.status?.observedGeneration ?? 0),
  );
  const surplus = old.length - (deployment.spec?.revisionHistoryLimit ?? 10);
  if (surplus <= 0) return [];
  return idle.sort((a, b) => compareRevisions(a, b) || byAge(a, b)).slice(0, surplus);
}

function byAge(a: ReplicaSet, b: ReplicaSet): number {
  const difference = timeOf(a.metadata?.creationTimestamp) - timeOf(b.metadata?.creationTimestamp);
  if (difference !== 0) return difference;
  return (a.metadata?.name ?? '') < (b.metadata?.name ?? '') ? -1 : 1;
}

function newest(sets: readonly ReplicaSet[]): ReplicaSet | undefined {
  return [...sets].sort(byAge).at(-1);
}
