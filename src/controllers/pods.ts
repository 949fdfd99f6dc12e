import type { KubeObject, OwnerReference, Pod, PodTemplateSpec } from '../kube/types.ts';

/** Reports whether a pod counts as a replica: neither finished nor being deleted. */
export function isActive(pod: Pod): boolean {
  return !isFinished(pod) && pod.metadata?.deletionTimestamp === undefined;
}

export function isFinished(pod: Pod): boolean {
  return pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
}

export function conditionOf(pod: Pod, type: string) {
  return pod.status?.conditions?.find((condition) => condition.type === type);
}

export function isReady(pod: Pod): boolean {
  return conditionOf(pod, 'Ready')?.status === 'True';
}

/**
 * Returns 0 if the pod has been ready for `minReadySeconds`, else the milliseconds until then; Infinity for a pod that
 * is not ready.
 */
export function availableIn(pod: Pod, minReadySeconds: number, now: number): number {
  if (!isReady(pod)) return Number.POSITIVE_INFINITY;
  if (minReadySeconds === 0) return 0;
  const since = timeOf(conditionOf(pod, 'Ready')?.lastTransitionTime);
  return Math.max(0, since + minReadySeconds * 1000 - now);
}

/** Converts an API timestamp to milliseconds since 1970; 0 if absent. */
export function timeOf(timestamp: string | undefined): number {
  const time = timestamp === undefined ? Number.NaN : Date.parse(timestamp);
  return Number.isNaN(time) ? 0 : time;
}

/** Returns when a finished pod ended, in milliseconds since 1970: when its last container did, or its creation. */
export function endOf(pod: Pod): number {
  const ends = (pod.status?.containerStatuses ?? []).map(({ state }) =>
    timeOf(state?.terminated?.finishedAt),
  );
  return Math.max(timeOf(pod.metadata?.creationTimestamp), ...ends);
}

/** Builds a pod from a template, controlled by `owner`; named by the server with `prefix`, or exactly `name`. */
export function podFrom(
  template: PodTemplateSpec | undefined,
  owner: KubeObject,
  reference: OwnerReference,
  more: { readonly name?: string; readonly labels?: Record<string, string> } = {},
): Pod {
  const { labels, annotations, finalizers } = template?.metadata ?? {};
  return {
    metadata: {
      ...(more.name === undefined ? { generateName: prefixOf(owner) } : { name: more.name }),
      ...(owner.metadata?.namespace ? { namespace: owner.metadata.namespace } : {}),
      labels: { ...labels, ...more.labels },
      ...(annotations ? { annotations } : {}),
      ...(finalizers ? { finalizers } : {}),
      ownerReferences: [reference],
    },
    ...(template?.spec ? { spec: template.spec } : {}),
  };
}

/** Names that become host names have at most 63 characters, five of which the server appends. */
function prefixOf(owner: KubeObject): string {
  const name = owner.metadata?.name ?? '';
  return name.length <= 57 ? `${name}-` : name.slice(0, 58);
}

const PHASE_RANK: Readonly<Record<string, number>> = { Pending: 0, Unknown: 1, Running: 2 };

/**
 * Orders pods for deletion, the least valuable first, as upstream's ActivePodsWithRanks: unassigned, then pending, then
 * not ready, then lower deletion cost, then more siblings on their node, then ready for a shorter time, then more
 * restarts, then newer.
 */
export function byDeletionRank(pods: readonly Pod[], siblings: readonly Pod[] = pods): Pod[] {
  const perNode = new Map<string, number>();
  for (const pod of siblings) {
    const node = pod.spec?.nodeName;
    if (node && isActive(pod)) perNode.set(node, (perNode.get(node) ?? 0) + 1);
  }
  const keys = new Map(pods.map((pod) => [pod, rankOf(pod, perNode)]));
  return [...pods].sort((a, b) => {
    const left = keys.get(a) ?? [];
    const right = keys.get(b) ?? [];
    for (let i = 0; i < left.length; i++) {
      const difference = (left[i] ?? 0) - (right[i] ?? 0);
      if (difference !== 0) return difference;
    }
    return (a.metadata?.name ?? '') < (b.metadata?.name ?? '') ? -1 : 1;
  });
}

function rankOf(pod: Pod, perNode: ReadonlyMap<string, number>): number[] {
  const node = pod.spec?.nodeName;
  const restarts = (pod.status?.containerStatuses ?? []).map((status) => status.restartCount);
  return [
    node ? 1 : 0,
    PHASE_RANK[pod.status?.phase ?? 'Pending'] ?? 1,
    isReady(pod) ? 1 : 0,
    deletionCost(pod),
    -(perNode.get(node ?? '') ?? 0),
    isReady(pod) ? -timeOf(conditionOf(pod, 'Ready')?.lastTransitionTime) : 0,
    -Math.max(0, ...restarts),
    -timeOf(pod.metadata?.creationTimestamp),
  ];
}

/** KEP-2255; a value that is not a 32-bit number counts as 0. */
function deletionCost(pod: Pod): number {
  const text = pod.metadata?.annotations?.['controller.kubernetes.io/pod-deletion-cost'] ?? '0';
  return /^(0|-?[1-9][0-9]{0,9})$/.test(text) ? Number(text) : 0;
}
