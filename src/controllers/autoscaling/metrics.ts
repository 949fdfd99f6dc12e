import { parseQuantity } from '../../kube/quantity.ts';
import type { Pod } from '../../kube/types.ts';
import { FairleadError } from '../../lib/errors.ts';
import { conditionOf, isFinished, timeOf } from '../pods.ts';

/** Usage of a resource by a pod's containers: cores or bytes, by container. */
export interface PodUsage {
  readonly at: number;
  readonly containers: ReadonlyMap<string, number>;
}

export interface ResourceTarget {
  /** "cpu" or "memory". */
  readonly resource: string;
  /** One container of each pod; absent: all containers. */
  readonly container?: string;
  /** Percentage of the requests, or an amount for each pod. */
  readonly utilization?: number;
  readonly average?: number;
  /** Relative deviation from the target without a change, by direction (KEP-4951). Default: 0.1. */
  readonly tolerance?: { readonly up?: number; readonly down?: number };
}

export interface Recommendation {
  readonly replicas: number;
  /** Percentage of the requests, for a utilization target. */
  readonly utilization?: number;
  /** Average per pod. */
  readonly average: number;
}

/** CPU usage during a pod's start does not represent its load (upstream's --horizontal-pod-autoscaler-* flags). */
const CPU_INITIALIZATION_MS = 300_000;
const READINESS_DELAY_MS = 30_000;
const WINDOW_MS = 10_000;
const TOLERANCE = 0.1;

/**
 * Computes the replica count that brings the usage of a resource to its target (upstream's ReplicaCalculator): pods
 * without metrics count as if they changed nothing, pods that are not ready as if they used nothing. Throws if no usage
 * or no request is known. Pure.
 */
export function recommendReplicas(
  current: number,
  pods: readonly Pod[],
  usage: ReadonlyMap<string, PodUsage>,
  target: ResourceTarget,
  now: number,
): Recommendation {
  const ready = new Map<Pod, number>();
  const unready: Pod[] = [];
  const missing: Pod[] = [];
  for (const pod of pods) {
    if (pod.metadata?.deletionTimestamp !== undefined || isFinished(pod)) continue;
    const measured = usage.get(pod.metadata?.name ?? '');
    const amount = measured ? usedBy(measured, target) : null;
    if (pod.status?.phase === 'Pending') unready.push(pod);
    else if (!measured || amount === null) missing.push(pod);
    else if (target.resource === 'cpu' && isStarting(pod, measured, now)) unready.push(pod);
    else ready.set(pod, amount);
  }
  if (ready.size === 0) {
    throw new FairleadError('did not receive metrics for targeted pods (pods might be unready)', {
      op: 'scale workload',
      code: 'not-ready',
      hint: 'kubectl top pods shows whether metrics are served',
    });
  }
  const wantedOf = (pod: Pod) =>
    target.utilization === undefined
      ? (target.average ?? 0)
      : (requestOf(pod, target) * target.utilization) / 100;
  const sum = (amounts: Iterable<number>) => [...amounts].reduce((total, one) => total + one, 0);
  const used = sum(ready.values());
  const ratioOf = (amounts: ReadonlyMap<Pod, number>) =>
    sum(amounts.values()) / Math.max(Number.MIN_VALUE, sum([...amounts.keys()].map(wantedOf)));
  const figures = {
    average: used / ready.size,
    ...(target.utilization === undefined
      ? {}
      : {
          utilization: Math.floor((used * 100) / sum([...ready.keys()].map((pod) => requestOf(pod, target)))),
        }),
  };
  const ratio = ratioOf(ready);
  const { up = TOLERANCE, down = TOLERANCE } = target.tolerance ?? {};
  const isClose = (value: number) => value <= 1 + up && value >= 1 - down;
  if (missing.length === 0 && (unready.length === 0 || ratio <= 1)) {
    return { ...figures, replicas: isClose(ratio) ? current : Math.ceil(ratio * ready.size) };
  }
  const counted = new Map(ready);
  for (const pod of missing) {
    // When scaling down, a pod without metrics counts with its full target; when scaling up, with zero.
    const full =
      target.utilization === undefined
        ? wantedOf(pod)
        : (requestOf(pod, target) * Math.max(100, target.utilization)) / 100;
    counted.set(pod, ratio < 1 ? full : 0);
  }
  if (ratio > 1) for (const pod of unready) counted.set(pod, 0);
  const careful = ratioOf(counted);
  const isTurned = (ratio < 1 && careful > 1) || (ratio > 1 && careful < 1);
  if (isClose(careful) || isTurned) return { ...figures, replicas: current };
  const replicas = Math.ceil(careful * counted.size);
  const isBackwards = (careful < 1 && replicas > current) || (careful > 1 && replicas < current);
  return { ...figures, replicas: isBackwards ? current : replicas };
}

function usedBy({ containers }: PodUsage, { container }: ResourceTarget): number | null {
  if (container !== undefined) return containers.get(container) ?? null;
  return [...containers.values()].reduce((total, one) => total + one, 0);
}

function requestOf(pod: Pod, { resource, container }: ResourceTarget): number {
  const whole = pod.spec?.resources?.requests?.[resource];
  if (whole !== undefined && container === undefined) return parseQuantity(whole) || 0;
  const sidecars = (pod.spec?.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always');
  let sum = 0;
  for (const { name, resources } of [...(pod.spec?.containers ?? []), ...sidecars]) {
    if (container !== undefined && name !== container) continue;
    const text = resources?.requests?.[resource];
    if (text === undefined) {
      const message = `missing request for ${resource} in container ${name} of Pod ${pod.metadata?.name}`;
      const hint = `set resources.requests.${resource} of the container, or use a target of type AverageValue`;
      throw new FairleadError(message, { op: 'scale workload', code: 'bad-config', hint });
    }
    sum += parseQuantity(text) || 0;
  }
  return sum;
}

function isStarting(pod: Pod, measured: PodUsage, now: number): boolean {
  const ready = conditionOf(pod, 'Ready');
  const startedAt = timeOf(pod.status?.startTime);
  if (!ready || startedAt === 0) return true;
  const since = timeOf(ready.lastTransitionTime);
  if (startedAt + CPU_INITIALIZATION_MS > now) {
    return ready.status === 'False' || measured.at < since + WINDOW_MS;
  }
  return ready.status === 'False' && startedAt + READINESS_DELAY_MS > since;
}
