import { parseQuantity } from '../../kube/quantity.ts';
import { timestamp } from '../../kube/timestamp.ts';
import type { HorizontalPodAutoscaler, Pod } from '../../kube/types.ts';
import { messageOf } from '../../lib/errors.ts';
import { limitReplicas, type ScalingHistory } from './behavior.ts';
import { type PodUsage, type Recommendation, type ResourceTarget, recommendReplicas } from './metrics.ts';

type Status = NonNullable<HorizontalPodAutoscaler['status']>;
type MetricStatus = NonNullable<Status['currentMetrics']>[number];
type MetricSpec = NonNullable<NonNullable<HorizontalPodAutoscaler['spec']>['metrics']>[number];

export interface AutoscalerView {
  readonly autoscaler: HorizontalPodAutoscaler;
  /** spec.replicas of the scale. */
  readonly current: number;
  /** The pods that the scale selects. */
  readonly pods: readonly Pod[];
  /** By resource, then by the pod's name. An error if there are no metrics. */
  readonly usage: ReadonlyMap<string, ReadonlyMap<string, PodUsage>> | Error;
  readonly history: ScalingHistory;
  readonly now: number;
}

export interface AutoscalerPlan {
  /** The replica count to set; null: unchanged. */
  readonly scaleTo: number | null;
  readonly reason: string;
  /** The recommendation of the metrics; null if they have none. */
  readonly recommendation: number | null;
  readonly status: Status;
  readonly warnings: readonly { readonly reason: string; readonly message: string }[];
}

/** Computes the next step of a HorizontalPodAutoscaler (upstream's reconcileAutoscaler). Pure. */
export function reconcileAutoscaler(view: AutoscalerView): AutoscalerPlan {
  const { autoscaler, current, now } = view;
  const { minReplicas = 1, maxReplicas = 1 } = autoscaler.spec ?? {};
  const conditions = conditionList(autoscaler, now);
  conditions.put(
    'AbleToScale',
    'True',
    'SucceededGetScale',
    "the HPA controller was able to get the target's current scale",
  );
  const warnings: { reason: string; message: string }[] = [];
  const done = (
    wanted: number,
    reason: string,
    more: { metrics?: MetricStatus[]; recommendation?: number | null } = {},
  ): AutoscalerPlan => {
    const isChange = wanted !== current;
    if (isChange) {
      conditions.put(
        'AbleToScale',
        'True',
        'SucceededRescale',
        `the HPA controller was able to update the target scale to ${wanted}`,
      );
    }
    const { lastScaleTime } = autoscaler.status ?? {};
    return {
      scaleTo: isChange ? wanted : null,
      reason,
      recommendation: more.recommendation ?? null,
      status: {
        observedGeneration: autoscaler.metadata?.generation ?? 0,
        currentReplicas: current,
        desiredReplicas: wanted,
        ...(more.metrics ? { currentMetrics: more.metrics } : {}),
        ...(isChange ? { lastScaleTime: timestamp(now) } : lastScaleTime ? { lastScaleTime } : {}),
        conditions: conditions.list,
      },
      warnings,
    };
  };
  if (current === 0 && minReplicas !== 0) {
    const message = 'scaling is disabled since the replica count of the target is zero';
    conditions.put('ScalingActive', 'False', 'ScalingDisabled', message);
    return done(0, '');
  }
  if (current > maxReplicas) return done(maxReplicas, 'Current number of replicas above Spec.MaxReplicas');
  if (current < minReplicas) return done(minReplicas, 'Current number of replicas below Spec.MinReplicas');
  const measured = measureAll(view);
  for (const failure of measured.failures) warnings.push(failure);
  const best = measured.results.toSorted((a, b) => b.replicas - a.replicas)[0];
  const [failure] = measured.failures;
  // With a metric missing, the count does not decrease: that metric might require more.
  if (!best || (failure && best.replicas < current)) {
    const { reason = 'InvalidMetricSourceType', message = 'no metric can be measured' } = failure ?? {};
    const text = `the HPA was unable to compute the replica count: ${message}`;
    conditions.put('ScalingActive', 'False', reason, text);
    return done(current, '', { metrics: measured.statuses });
  }
  const found = `the HPA was able to successfully calculate a replica count from ${best.name}`;
  conditions.put('ScalingActive', 'True', 'ValidMetricFound', found);
  const limited = limitReplicas(autoscaler, current, best.replicas, view.history, now);
  if (limited.isStabilized) {
    const isUp = best.replicas > current;
    const reason = isUp ? 'ScaleUpStabilized' : 'ScaleDownStabilized';
    const message = isUp
      ? 'recent recommendations were lower than current one, applying the lowest recent recommendation'
      : 'recent recommendations were higher than current one, applying the highest recent recommendation';
    conditions.put('AbleToScale', 'True', reason, message);
  } else {
    conditions.put('AbleToScale', 'True', 'ReadyForNewScale', 'recommended size matches current size');
  }
  if (limited.limit) conditions.put('ScalingLimited', 'True', limited.limit.reason, limited.limit.message);
  else
    conditions.put(
      'ScalingLimited',
      'False',
      'DesiredWithinRange',
      'the desired count is within the acceptable range',
    );
  const reason =
    limited.replicas > current
      ? `${best.name} above target`
      : limited.replicas < current
        ? 'All metrics below target'
        : '';
  return done(limited.replicas, reason, { metrics: measured.statuses, recommendation: best.replicas });
}

interface Measured {
  readonly results: { readonly replicas: number; readonly name: string }[];
  readonly failures: { readonly reason: string; readonly message: string }[];
  readonly statuses: MetricStatus[];
}

function measureAll({ autoscaler, current, pods, usage, now }: AutoscalerView): Measured {
  const measured: Measured = { results: [], failures: [], statuses: [] };
  const tolerance = toleranceOf(autoscaler);
  for (const metric of autoscaler.spec?.metrics ?? []) {
    const target = targetOf(metric, tolerance);
    if (!target) {
      const reason = `FailedGet${metric.type}Metric`;
      const message = `metrics of type ${metric.type} are not available: this cluster measures cpu and memory only`;
      measured.failures.push({ reason, message });
      continue;
    }
    try {
      if (usage instanceof Error) throw usage;
      const found = recommendReplicas(current, pods, usage.get(target.resource) ?? new Map(), target, now);
      const scope = target.container === undefined ? '' : 'container ';
      const name = `${target.resource} ${scope}resource${target.utilization === undefined ? '' : ' utilization (percentage of request)'}`;
      measured.results.push({ replicas: found.replicas, name });
      measured.statuses.push(statusOf(target, found));
    } catch (error) {
      const reason =
        target.container === undefined ? 'FailedGetResourceMetric' : 'FailedGetContainerResourceMetric';
      const message = `failed to get ${target.resource} ${target.utilization === undefined ? 'usage' : 'utilization'}: ${messageOf(error)}`;
      measured.failures.push({ reason, message });
    }
  }
  return measured;
}

function toleranceOf({ spec }: HorizontalPodAutoscaler): NonNullable<ResourceTarget['tolerance']> {
  const [up, down] = [spec?.behavior?.scaleUp?.tolerance, spec?.behavior?.scaleDown?.tolerance];
  return {
    ...(up === undefined ? {} : { up: parseQuantity(up) }),
    ...(down === undefined ? {} : { down: parseQuantity(down) }),
  };
}

function targetOf(
  { type, resource, containerResource }: MetricSpec,
  tolerance: NonNullable<ResourceTarget['tolerance']>,
): ResourceTarget | null {
  const source =
    type === 'Resource' ? resource : type === 'ContainerResource' ? containerResource : undefined;
  if (!source) return null;
  const { averageUtilization, averageValue } = source.target;
  return {
    resource: source.name,
    tolerance,
    ...(type === 'ContainerResource' && containerResource ? { container: containerResource.container } : {}),
    ...(averageUtilization === undefined
      ? { average: parseQuantity(averageValue ?? '0') || 0 }
      : { utilization: averageUtilization }),
  };
}

function statusOf(target: ResourceTarget, { utilization, average }: Recommendation): MetricStatus {
  const averageValue = target.resource === 'cpu' ? `${Math.ceil(average * 1000)}m` : `${Math.ceil(average)}`;
  const current = { ...(utilization === undefined ? {} : { averageUtilization: utilization }), averageValue };
  const { resource: name, container } = target;
  return container === undefined
    ? { type: 'Resource', resource: { name, current } }
    : { type: 'ContainerResource', containerResource: { name, container, current } };
}

function conditionList(autoscaler: HorizontalPodAutoscaler, now: number) {
  const list = [...(autoscaler.status?.conditions ?? [])];
  return {
    list,
    put(type: string, status: string, reason: string, message: string) {
      const at = list.findIndex((condition) => condition.type === type);
      const before = list[at];
      const lastTransitionTime =
        before?.status === status && before.lastTransitionTime ? before.lastTransitionTime : timestamp(now);
      const entry = { type, status, reason, message, lastTransitionTime };
      if (at < 0) list.push(entry);
      else list[at] = entry;
    },
  };
}
