import { coversNamespace } from './allows.ts';
import { createLabelIndex, labelOf } from './label-index.ts';
import type { PodGroup, PolicyPod } from './model.ts';

/** The labels of namespaces. */
export interface NamespaceLabels {
  keys(): Iterable<string>;
  /** Returns null if the namespace is not known. */
  of(name: string): Readonly<Record<string, string>> | null;
}

/** Pods by namespace, and by each of their labels. */
export interface PodIndex<T extends { readonly pod: PolicyPod }> {
  add(entry: T): void;
  /** Removes an entry that has the same pod as when it was added. */
  delete(entry: T): void;
  in(namespace: string): Iterable<T>;
  /** Calls back with the pods that a group may select: those in its namespaces that have a label that it needs. */
  eachCandidate(group: PodGroup, use: (entry: T) => void): void;
}

export function createPodIndex<T extends { readonly pod: PolicyPod }>(
  namespaces: NamespaceLabels,
): PodIndex<T> {
  const index = createLabelIndex<T>();
  return {
    add(entry) {
      for (const label of ['', ...labelsIn(entry.pod)]) index.add(entry.pod.namespace, label, entry);
    },
    delete(entry) {
      for (const label of ['', ...labelsIn(entry.pod)]) index.delete(entry.pod.namespace, label, entry);
    },
    in: (namespace) => index.get(namespace, ''),
    eachCandidate(group, use) {
      const label = labelOf(group.pods);
      const names = typeof group.namespaces === 'string' ? [group.namespaces] : namespaces.keys();
      for (const name of names) {
        if (!coversNamespace(group, name, namespaces.of(name))) continue;
        for (const entry of index.get(name, label)) use(entry);
      }
    },
  };
}

const labelsIn = ({ labels }: PolicyPod): string[] =>
  Object.entries(labels).map(([key, value]) => `${key}=${value}`);
