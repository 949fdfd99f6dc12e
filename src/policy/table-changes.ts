import type { PolicyChange } from './model.ts';

/** The pods and policies that have changed since the last commit. */
export interface TableChanges {
  /** Records a pod of the table; called for each of a cold start's hundreds of thousands of memberships. */
  entry(entry: ChangeableEntry): void;
  pod(key: string): void;
  policy(key: string): void;
  commit(): PolicyChange;
  readonly isEmpty: boolean;
}

export interface ChangeableEntry {
  readonly pod: { readonly key: string };
  /** The number of the commit that will include the pod; -1: none has. */
  changedIn: number;
}

export function createTableChanges(): TableChanges {
  let pods = new Set<string>();
  let policies = new Set<string>();
  let generation = 0;
  return {
    entry(entry) {
      if (entry.changedIn === generation) return;
      entry.changedIn = generation;
      pods.add(entry.pod.key);
    },
    pod: (key) => void pods.add(key),
    policy: (key) => void policies.add(key),
    commit() {
      const change = { pods, policies };
      pods = new Set();
      policies = new Set();
      generation++;
      return change;
    },
    get isEmpty() {
      return pods.size + policies.size === 0;
    },
  };
}
