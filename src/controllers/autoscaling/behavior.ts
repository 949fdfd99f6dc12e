import type { HorizontalPodAutoscaler } from '../../kube/types.ts';

type Rules = NonNullable<NonNullable<NonNullable<HorizontalPodAutoscaler['spec']>['behavior']>['scaleUp']>;

/** State of an autoscaler between evaluations. */
export interface ScalingHistory {
  /** Replica counts recommended by the metrics. */
  readonly recommendations: readonly { readonly at: number; readonly replicas: number }[];
  /** Changes of the replica count: above 0 up, below 0 down. */
  readonly changes: readonly { readonly at: number; readonly by: number }[];
}

export interface Limited {
  readonly replicas: number;
  /** Why the count differs from the recommendation of the metrics; null if it does not. */
  readonly limit: { readonly reason: string; readonly message: string } | null;
  /** The stabilization window determined the recommendation. */
  readonly isStabilized: boolean;
}

const DEFAULT_UP: Rules = {
  stabilizationWindowSeconds: 0,
  policies: [
    { type: 'Pods', value: 4, periodSeconds: 15 },
    { type: 'Percent', value: 100, periodSeconds: 15 },
  ],
};
const DEFAULT_DOWN: Rules = {
  stabilizationWindowSeconds: 300,
  policies: [{ type: 'Percent', value: 100, periodSeconds: 15 }],
};

/** Limits the recommended replica count by the autoscaler's behavior and bounds (KEP-853). Pure. */
export function limitReplicas(
  autoscaler: HorizontalPodAutoscaler,
  current: number,
  wanted: number,
  history: ScalingHistory,
  now: number,
): Limited {
  const { minReplicas = 1, maxReplicas = 1, behavior } = autoscaler.spec ?? {};
  const up = { ...DEFAULT_UP, ...behavior?.scaleUp };
  const down = { ...DEFAULT_DOWN, ...behavior?.scaleDown };
  const within = (seconds: number | undefined) =>
    history.recommendations
      .filter(({ at }) => at > now - (seconds ?? 0) * 1000)
      .map(({ replicas }) => replicas);
  const lowest = Math.min(wanted, ...within(up.stabilizationWindowSeconds ?? 0));
  const highest = Math.max(wanted, ...within(down.stabilizationWindowSeconds ?? 300));
  const stable = Math.max(Math.min(current, highest), lowest);
  const isStabilized = stable !== wanted;
  const bounded = (replicas: number, reason: string, message: string): Limited => ({
    replicas,
    limit: { reason, message },
    isStabilized,
  });
  if (stable > current) {
    const limit = Math.max(current, changeLimit(up, current, history, now, 1));
    if (stable > Math.min(limit, maxReplicas)) {
      return limit < maxReplicas
        ? bounded(
            limit,
            'ScaleUpLimit',
            'the desired replica count is increasing faster than the maximum scale rate',
          )
        : bounded(
            maxReplicas,
            'TooManyReplicas',
            'the desired replica count is more than the maximum replica count',
          );
    }
  } else if (stable < current) {
    const limit = Math.min(current, changeLimit(down, current, history, now, -1));
    if (stable < Math.max(limit, minReplicas)) {
      return limit > minReplicas
        ? bounded(
            limit,
            'ScaleDownLimit',
            'the desired replica count is decreasing faster than the maximum scale rate',
          )
        : bounded(
            minReplicas,
            'TooFewReplicas',
            'the desired replica count is less than the minimum replica count',
          );
    }
  }
  return { replicas: stable, limit: null, isStabilized };
}

/** Returns the replica count that the policies of a direction (1 up, -1 down) allow now. */
function changeLimit(
  rules: Rules,
  current: number,
  history: ScalingHistory,
  now: number,
  sign: 1 | -1,
): number {
  if (rules.selectPolicy === 'Disabled') return current;
  const limits = (rules.policies ?? []).map(({ type, value, periodSeconds }) => {
    const recent = history.changes.filter(({ at, by }) => at > now - periodSeconds * 1000 && by * sign > 0);
    const start = current - recent.reduce((sum, { by }) => sum + by, 0);
    const limit = type === 'Pods' ? start + sign * value : start * (1 + (sign * value) / 100);
    return sign > 0 ? Math.ceil(limit) : Math.floor(limit);
  });
  if (limits.length === 0) return sign > 0 ? Number.POSITIVE_INFINITY : 0;
  // "Max" selects the policy with the largest change, which downwards yields the smallest count.
  const isWidest = rules.selectPolicy !== 'Min';
  return sign > 0 === isWidest ? Math.max(...limits) : Math.min(...limits);
}
