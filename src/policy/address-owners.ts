import type { Pod } from '../kube/types.ts';
import { readPod } from './pod-reader.ts';

/** Addresses that are remembered. */
const MAX_REMEMBERED = 65_536;

/** Remembers the pods of addresses, to recognize an address that another pod had before. */
export interface AddressOwners {
  /** Records a pod; returns its addresses that it has now for the first time, and that another pod had before. */
  set(pod: Pod): string[];
  delete(uid: string): void;
}

export function createAddressOwners(max = MAX_REMEMBERED): AddressOwners {
  /** By address: the uid of its latest pod; those of the longest ago first. */
  const latest = new Map<string, string>();
  /** By uid: the addresses of pods that exist. */
  const known = new Map<string, ReadonlySet<string>>();
  return {
    set(pod) {
      const uid = pod.metadata?.uid ?? '';
      // The addresses of a pod that has ended may already be another's.
      const addresses = new Set(readPod(pod)?.addresses);
      if (addresses.size === 0) return [];
      const before = known.get(uid);
      known.set(uid, addresses);
      return [...addresses].filter((address) => {
        if (before?.has(address)) return false;
        const former = latest.get(address);
        latest.delete(address);
        latest.set(address, uid);
        if (latest.size > max) latest.delete(latest.keys().next().value ?? '');
        return former !== undefined && former !== uid;
      });
    },
    delete: (uid) => void known.delete(uid),
  };
}
