import type { Pod } from './types.ts';

/** The fields of a PodDisruptionBudget's spec (policy/v1) that set its limits. */
export interface DisruptionBudgetSpec {
  readonly minAvailable?: number | string;
  readonly maxUnavailable?: number | string;
}

/** State of a budget, as in its status. */
export interface DisruptionBudgetState {
  readonly expectedPods: number;
  readonly desiredHealthy: number;
  readonly currentHealthy: number;
  readonly disruptionsAllowed: number;
}

/** The controller of a pod, and its replica count; pods without a controller count individually. */
export interface Scale {
  readonly uid: string;
  readonly replicas: number;
}

/**
 * Computes how many of a budget's pods must be healthy, and how many are. Percentages and maxUnavailable are relative
 * to the replica counts of the pods' controllers, as in upstream's disruption controller. Pure.
 */
export function disruptionBudgetState(
  { minAvailable, maxUnavailable }: DisruptionBudgetSpec,
  pods: readonly Pod[],
  scaleOf: (pod: Pod) => Scale | null,
): DisruptionBudgetState {
  const present = pods.filter(({ status }) => status?.phase !== 'Succeeded' && status?.phase !== 'Failed');
  const scales = new Map<string, number>();
  for (const pod of present) {
    const { uid, replicas } = scaleOf(pod) ?? { uid: pod.metadata?.uid ?? '', replicas: 1 };
    scales.set(uid, replicas);
  }
  const wanted = [...scales.values()].reduce((sum, replicas) => sum + replicas, 0);
  const byCount = maxUnavailable === undefined && typeof minAvailable !== 'string';
  const expectedPods = byCount ? present.length : wanted;
  const desiredHealthy =
    maxUnavailable === undefined
      ? amountOf(minAvailable ?? 1, expectedPods)
      : Math.max(0, expectedPods - amountOf(maxUnavailable, expectedPods));
  const currentHealthy = present.filter(isHealthy).length;
  const disruptionsAllowed = expectedPods > 0 ? Math.max(0, currentHealthy - desiredHealthy) : 0;
  return { expectedPods, desiredHealthy, currentHealthy, disruptionsAllowed };
}

/** Reports whether a pod is ready and not being deleted. */
export function isHealthy({ metadata, status }: Pod): boolean {
  return (
    metadata?.deletionTimestamp === undefined &&
    (status?.conditions ?? []).some((one) => one.type === 'Ready' && one.status === 'True')
  );
}

/** Converts an amount or percentage to a number; percentages are rounded up. */
function amountOf(value: number | string, whole: number): number {
  if (typeof value === 'number') return value;
  return Math.ceil((Number.parseInt(value, 10) / 100) * whole);
}
