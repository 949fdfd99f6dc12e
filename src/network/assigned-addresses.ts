import { type Cidr, cidrContains } from '../lib/address.ts';
import type { AddressJournal } from './address-journal.ts';
import { AddressPool } from './address-pool.ts';
import type { HostPort } from './host-ports.ts';

export interface PoolUsage {
  /** "10.244.1.0/24" */
  readonly network: string;
  readonly size: bigint;
  readonly used: number;
}

/** The addresses that a node has assigned to its pods; the journal keeps them over a restart. */
export interface AssignedAddresses {
  /** Assigns an address of each network to a pod, unless it has them. `fresh`: it had none. */
  take(pod: AddressedPod): { ips: string[]; fresh: boolean };
  free(uid: string): void;
  usage(): readonly PoolUsage[];
}

export interface AddressedPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly hostPorts?: readonly HostPort[];
}

/** `onFreed`: called with each address that a pod no longer has. */
export function openAssignedAddresses(
  journal: AddressJournal,
  networks: readonly Cidr[],
  onFreed: (address: string) => void,
): AssignedAddresses {
  const pools = networks.map((cidr) => new AddressPool(cidr));
  const poolOf = (address: string) => pools.find((pool) => cidrContains(pool.cidr, address));
  for (const record of journal.records.values()) for (const ip of record.ips) poolOf(ip)?.claim(ip);
  // Claimed last, so that allocation continues after the last allocated address, and released if it is not in use.
  for (const ip of journal.last?.ips ?? []) poolOf(ip)?.claim(ip);
  if (journal.last && !journal.records.has(journal.last.uid)) release(journal.last.ips);

  function release(ips: readonly string[]): void {
    for (const ip of ips) poolOf(ip)?.release(ip);
  }

  function free(uid: string): void {
    const record = journal.records.get(uid);
    if (!record) return;
    journal.free(uid);
    release(record.ips);
    for (const ip of record.ips) onFreed(ip);
  }

  return {
    take(pod) {
      const known = journal.records.get(pod.uid);
      // Addresses of a former network of the node are useless.
      if (known && known.ips.length === pools.length && known.ips.every(poolOf)) {
        return { ips: [...known.ips], fresh: false };
      }
      if (known) free(pod.uid);
      const ips: string[] = [];
      try {
        for (const pool of pools) ips.push(pool.take());
      } catch (error) {
        release(ips);
        throw error;
      }
      const ports = pod.hostPorts ?? [];
      journal.take({
        uid: pod.uid,
        pod: `${pod.namespace}/${pod.name}`,
        ips,
        ...(ports.length > 0 ? { hostPorts: ports } : {}),
      });
      return { ips, fresh: true };
    },
    free,
    usage: () => pools.map(({ cidr, size, taken }) => ({ network: cidr.text, size, used: taken })),
  };
}
