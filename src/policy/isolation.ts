import { areEqual } from '../lib/list-equality.ts';
import { DIRECTIONS, type Direction, type Policy } from './model.ts';

/** The keys of the policies that isolate a pod in each direction, in the order of evaluation. */
export type IsolatedBy = Readonly<Record<Direction, readonly string[]>>;

export const NOT_ISOLATED: IsolatedBy = { ingress: [], egress: [] };

/** Returns which of the policies that select a pod, in the order of evaluation, isolate it. */
export const isolatedBy = (selecting: readonly Policy[]): IsolatedBy => ({
  ingress: selecting.filter(({ ingress }) => ingress !== null).map(({ key }) => key),
  egress: selecting.filter(({ egress }) => egress !== null).map(({ key }) => key),
});

/**
 * Returns the policies of a pod with a new or changed one in its place; null: the policy does not select the pod, or was
 * deleted. `compare`: the order of evaluation, in which a policy that stays may have another place than before.
 */
export function withPolicy(
  before: IsolatedBy,
  key: string,
  policy: Policy | null,
  compare: (a: string, b: string) => number,
): IsolatedBy {
  const listed = (direction: Direction): readonly string[] => {
    const others = before[direction].filter((one) => one !== key);
    return policy !== null && policy[direction] !== null ? [...others, key].sort(compare) : others;
  };
  return { ingress: listed('ingress'), egress: listed('egress') };
}

/** The pods of a node that policies isolate, and the policies that do. */
export interface Isolation<T extends { isolatedBy: IsolatedBy }> {
  /** Sets the policies that isolate a pod. */
  set(entry: T, next: IsolatedBy): void;
  /** Returns the pods that a policy isolates. */
  podsOf(policy: string): Iterable<T>;
  /** Returns true if a policy isolates a pod. */
  isActive(policy: string): boolean;
  /** The policies that isolate a pod. */
  active(): Iterable<string>;
  /** The pods that a policy isolates. */
  readonly pods: ReadonlySet<T>;
}

export interface IsolationListeners<T> {
  /** Called with each pod whose policies have changed. */
  readonly changed: (entry: T) => void;
  /** Called when a policy isolates its first pod, and when it isolates none any longer. */
  readonly activated: (policy: string, isActive: boolean) => void;
}

export function createIsolation<T extends { isolatedBy: IsolatedBy }>(
  listeners: IsolationListeners<T>,
): Isolation<T> {
  /** Policies without isolated pods are absent. */
  const isolated = new Map<string, Set<T>>();
  const pods = new Set<T>();

  function add(policy: string, entry: T): void {
    const known = isolated.get(policy);
    if (known) {
      known.add(entry);
      return;
    }
    isolated.set(policy, new Set([entry]));
    listeners.activated(policy, true);
  }

  function remove(policy: string, entry: T): void {
    const known = isolated.get(policy);
    if (!known?.delete(entry) || known.size > 0) return;
    isolated.delete(policy);
    listeners.activated(policy, false);
  }

  return {
    set(entry, next) {
      const before = entry.isolatedBy;
      if (DIRECTIONS.every((one) => areEqual(next[one], before[one]))) return;
      entry.isolatedBy = next;
      listeners.changed(entry);
      const [earlier, now] = [union(before), union(next)];
      if (now.size > 0) pods.add(entry);
      else pods.delete(entry);
      for (const policy of now) if (!earlier.has(policy)) add(policy, entry);
      for (const policy of earlier) if (!now.has(policy)) remove(policy, entry);
    },
    podsOf: (policy) => isolated.get(policy) ?? [],
    isActive: (policy) => isolated.has(policy),
    active: () => isolated.keys(),
    pods,
  };
}

const union = ({ ingress, egress }: IsolatedBy): Set<string> => new Set([...ingress, ...egress]);
