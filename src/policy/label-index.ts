import type { LabelSelector } from '../kube/types.ts';

type Labels = Readonly<Record<string, string>>;

/** Returns "key=value" of a label that every selected object has; '': there is none. */
export function labelOf({ matchLabels }: LabelSelector): string {
  for (const key in matchLabels) return `${key}=${matchLabels[key]}`;
  return '';
}

/**
 * Values by a label and a namespace, which finds the candidates for a selector or an object without a
 * search of all values.
 */
export interface LabelIndex<T> {
  add(namespace: string, label: string, value: T): void;
  delete(namespace: string, label: string, value: T): void;
  get(namespace: string, label: string): Iterable<T>;
  /** Returns all values indexed by a label of an object, or by ''. */
  of(namespace: string, labels: Labels): Iterable<T>;
  deleteNamespace(namespace: string): void;
}

export function createLabelIndex<T>(): LabelIndex<T> {
  const spaces = new Map<string, Map<string, Set<T>>>();
  const find = (namespace: string, label: string): Iterable<T> => spaces.get(namespace)?.get(label) ?? [];
  return {
    add(namespace, label, value) {
      let labels = spaces.get(namespace);
      if (!labels) {
        labels = new Map();
        spaces.set(namespace, labels);
      }
      const set = labels.get(label);
      if (set) set.add(value);
      else labels.set(label, new Set([value]));
    },
    delete(namespace, label, value) {
      const labels = spaces.get(namespace);
      const set = labels?.get(label);
      if (!labels || !set?.delete(value)) return;
      if (set.size === 0) labels.delete(label);
      if (labels.size === 0) spaces.delete(namespace);
    },
    get: find,
    *of(namespace, labels) {
      yield* find(namespace, '');
      for (const key in labels) yield* find(namespace, `${key}=${labels[key]}`);
    },
    deleteNamespace: (namespace) => void spaces.delete(namespace),
  };
}
