import { keyOf, type Pod } from '../kube/types.ts';

/** The node's pods and the namespaces whose objects have been read, for callers that wait for one. */
export interface PodArrivals {
  podSeen(pod: Pod): void;
  podGone(pod: Pod): void;
  /** Forgets a pod whose network was removed. */
  forget(key: string): void;
  /** Resolves when the object of a pod with this identity is known. */
  podKnown(key: string, uid: string): Promise<void>;
  /** Call it after a namespace has been read. */
  namespaceSeen(): void;
  namespaceKnown(name: string): Promise<void>;
}

export function createPodArrivals(isNamespaceKnown: (name: string) => boolean): PodArrivals {
  const known = new Map<string, string | undefined>();
  const podWaiters = new Set<(pod: Pod) => void>();
  const namespaceWaiters = new Set<() => void>();
  return {
    podSeen(pod) {
      known.set(keyOf(pod), pod.metadata?.uid);
      for (const arrived of podWaiters) arrived(pod);
    },
    podGone(pod) {
      if (known.get(keyOf(pod)) === pod.metadata?.uid) known.delete(keyOf(pod));
    },
    forget: (key) => void known.delete(key),
    podKnown(key, uid) {
      // Attachments by container runtimes have their own identifiers.
      const isIt = (other: string | undefined) => uid.includes('/') || other === undefined || other === uid;
      if (known.has(key) && isIt(known.get(key))) return Promise.resolve();
      return new Promise((resolve) => {
        const arrived = (pod: Pod) => {
          if (keyOf(pod) !== key || !isIt(pod.metadata?.uid)) return;
          podWaiters.delete(arrived);
          resolve();
        };
        podWaiters.add(arrived);
      });
    },
    namespaceSeen() {
      for (const arrived of namespaceWaiters) arrived();
    },
    namespaceKnown(name) {
      if (isNamespaceKnown(name)) return Promise.resolve();
      return new Promise((resolve) => {
        const arrived = () => {
          if (!isNamespaceKnown(name)) return;
          namespaceWaiters.delete(arrived);
          resolve();
        };
        namespaceWaiters.add(arrived);
      });
    },
  };
}
