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
  /**
   * Calls back with all values indexed by a label of an object, or by ''. A cold start asks for hundreds of thousands of
   * values, for which a generator takes twice as long.
   */
  forEach(namespace: string, labels: Labels, use: (value: T) => void): void;
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
    forEach(namespace, labels, use) {
      const space = spaces.get(namespace);
      space?.get('')?.forEach(use);
      for (const key in labels) space?.get(`${key}=${labels[key]}`)?.forEach(use);
    },
    deleteNamespace: (namespace) => void spaces.delete(namespace),
  };
}
