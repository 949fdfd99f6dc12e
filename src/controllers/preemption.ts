import type { Pod } from '../kube/types.ts';
import { fits, type NodeLoad, type NodeRefusal } from './node-selection.ts';
import { timeOf } from './pods.ts';

export interface Preemption {
  readonly node: string;
  /** Who has to go, and is not on the way out yet; none: those who are going make room. */
  readonly victims: readonly Pod[];
}

export interface PreemptionOptions {
  /** A PodDisruptionBudget allows no disruption of the pod: it goes only where nothing else helps. */
  readonly isProtected?: (pod: Pod) => boolean;
  readonly refuse?: NodeRefusal;
}

export const priorityOf = (pod: Pod): number => pod.spec?.priority ?? 0;

/**
 * For a pod that fits nowhere: the node where it would fit without some pods of lower priority, and which those are.
 * As few as possible, and as unimportant: nodes are compared by how many protected pods would go, then by the highest
 * priority that would, then by the number of victims. Null where that helps nowhere, or the pod does not want it. Pure.
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
  const isGoing = (other: Pod) => other.metadata?.deletionTimestamp !== undefined;
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
  // Who may stay after all: those who are not going already, protected ones, the most important and the oldest first.
  const ordered = lower
    .filter((other) => !isGoing(other))
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
