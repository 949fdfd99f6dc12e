import type { Pod } from '../kube/types.ts';
import { fits, type NodeLoad, type NodeRefusal } from './node-selection.ts';
import { timeOf } from './pods.ts';

export interface Preemption {
  readonly node: string;
  /** Pods to evict that are not yet being deleted; empty: those being deleted make enough room. */
  readonly victims: readonly Pod[];
}

export interface PreemptionOptions {
  /** A PodDisruptionBudget allows no disruption of the pod: it is evicted only as a last resort. */
  readonly isProtected?: (pod: Pod) => boolean;
  readonly refuse?: NodeRefusal;
}

export const priorityOf = (pod: Pod): number => pod.spec?.priority ?? 0;

/**
 * Finds, for a pod that fits nowhere, the node where it would fit without some pods of lower priority, and these pods:
 * as few and as unimportant as possible. Nodes are compared by the number of protected victims, then by the highest
 * priority of a victim, then by the number of victims. Returns null if no node helps, or the pod does not preempt.
 * Pure.
 */
export function findPreemption(
  pod: Pod,
  loads: readonly NodeLoad[],
  { isProtected = () => false, refuse = () => null }: PreemptionOptions = {},
): Preemption | null {
  if (pod.spec?.preemptionPolicy === 'Never') return null;
  const options = loads.flatMap((load) => preemptionOn(pod, load, loads, isProtected, refuse) ?? []);
  const cost = ({ victims }: Preemption) => [
    victims.filter(isProtected).length,
    Math.max(Number.NEGATIVE_INFINITY, ...victims.map(priorityOf)),
    victims.length,
  ];
  const costs = new Map(options.map((option) => [option, cost(option)]));
  return (
    options.toSorted((a, b) => {
      const [left = [], right = []] = [costs.get(a), costs.get(b)];
      const i = left.findIndex((value, at) => value !== right[at]);
      return i < 0 ? 0 : (left[i] ?? 0) < (right[i] ?? 0) ? -1 : 1;
    })[0] ?? null
  );
}

function preemptionOn(
  pod: Pod,
  load: NodeLoad,
  loads: readonly NodeLoad[],
  isProtected: (pod: Pod) => boolean,
  refuse: NodeRefusal,
): Preemption | null {
  const isLower = (other: Pod) => priorityOf(other) < priorityOf(pod);
  const isDeleting = (other: Pod) => other.metadata?.deletionTimestamp !== undefined;
  const node = load.node.metadata?.name ?? '';
  // Rules about other nodes' pods see the whole cluster.
  const fitsBeside = (pods: readonly Pod[]) => {
    const changed = { ...load, pods };
    return fits(
      pod,
      changed,
      loads.map((one) => (one === load ? changed : one)),
      refuse,
    );
  };
  const lower = load.pods.filter(isLower);
  let staying = load.pods.filter((other) => !isLower(other));
  if (lower.length === 0 || !fitsBeside(staying)) return null;
  // Order of reprieve: protected pods, then the most important and oldest; pods already being deleted are excluded.
  const ordered = lower
    .filter((other) => !isDeleting(other))
    .toSorted(
      (a, b) =>
        Number(isProtected(b)) - Number(isProtected(a)) ||
        priorityOf(b) - priorityOf(a) ||
        timeOf(a.metadata?.creationTimestamp) - timeOf(b.metadata?.creationTimestamp),
    );
  const victims: Pod[] = [];
  for (const other of ordered) {
    if (fitsBeside([...staying, other])) staying = [...staying, other];
    else victims.push(other);
  }
  return { node, victims };
}
