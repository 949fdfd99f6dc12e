import type { Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import type { PolicyPod } from './model.ts';
import { readPod } from './pod-reader.ts';

/** The objects of pods, and the addresses that this node has assigned to its own. */
export interface PodObjects {
  set(object: Pod): void;
  delete(key: string): void;
  /** See PolicyTable. */
  plugIn(key: string, owner: string, addresses: readonly string[]): void;
  unplug(key: string, owner: string): void;
}

/** `put`: called with each pod whose object or network has changed; null: it is gone. */
export function createPodObjects(
  node: string,
  put: (key: string, pod: PolicyPod | null) => void,
): PodObjects {
  const objects = new Map<string, Pod>();
  /** Pods whose objects were deleted while their networks still exist. */
  const leaving = new Set<string>();
  const plugged = new Map<string, { readonly owner: string; readonly addresses: readonly string[] }>();
  const refresh = (key: string): void => {
    const object = objects.get(key);
    const isHere = object?.spec?.nodeName === node;
    put(key, object ? readPod(object, isHere ? (plugged.get(key)?.addresses ?? null) : null) : null);
  };
  return {
    set(object) {
      const key = keyOf(object);
      objects.set(key, object);
      leaving.delete(key);
      refresh(key);
    },
    delete(key) {
      // The pod's processes may outlive its object: it stays isolated until its network is removed.
      if (plugged.has(key)) {
        leaving.add(key);
        return;
      }
      objects.delete(key);
      refresh(key);
    },
    plugIn(key, owner, addresses) {
      plugged.set(key, { owner, addresses });
      refresh(key);
    },
    unplug(key, owner) {
      if (plugged.get(key)?.owner !== owner) return;
      plugged.delete(key);
      if (leaving.delete(key)) objects.delete(key);
      refresh(key);
    },
  };
}
