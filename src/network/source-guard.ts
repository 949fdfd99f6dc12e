import type { NetnsRef } from '../kernel/netns.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import {
  DROPPED,
  FORGERS,
  GUARD_TABLE,
  type GuardedPort,
  renderGuard,
  renderPort,
} from './source-guard-rules.ts';

/** The packets of pods that the guard has dropped. */
export interface GuardCounts {
  /** With a source that is not the pod's. */
  readonly forged: number;
  /** Others that may not leave a pod: to another pod's MAC, to a group, of another protocol. */
  readonly stray: number;
  /** By the pod's port: forged packets. */
  readonly byPort: ReadonlyMap<string, number>;
}

/**
 * Lets packets of the node's pods pass only from each pod's own MAC and addresses, and only to the gateway. The table stays
 * when it is closed.
 */
export interface SourceGuard {
  /**
   * Guards the port of a pod, whose device exists; call it before the device is up. `isNew`: the device was just created.
   * Throws the kernel's error.
   */
  protect(port: GuardedPort, isNew: boolean): Promise<void>;
  /** Ends the guard of a port; call it when the device is down or gone. */
  release(port: string): Promise<void>;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  counts(): GuardCounts;
  close(): void;
}

export interface SourceGuardOptions {
  /** The MAC of the pods' bridge. */
  readonly gatewayMac: string;
  /** The ports that exist. */
  readonly ports: readonly GuardedPort[];
  /** Whether policies are enforced, which do nothing for pods that can send with the addresses of others. */
  readonly isRequired: boolean;
  /** Default: the kernel's answer. */
  readonly canGuard?: typeof kernelCanGuard;
  readonly netns?: NetnsRef | undefined;
  /** See KeptTablesOptions. */
  readonly owned?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

/** The kernel has no nf_tables chains at devices (CONFIG_NF_TABLES_NETDEV): pods are not guarded. */
export const UNGUARDED =
  'this kernel has no nf_tables chains at devices (CONFIG_NF_TABLES_NETDEV): pods can send packets with the addresses of others, and so pass network policies';

/**
 * Opens the guard, with all ports in one transaction; null: the kernel does not support it. Throws FairleadError
 * "missing-kernel-feature" if the guard is required then, and other errors of the kernel.
 */
export function openSourceGuard({
  gatewayMac,
  ports,
  isRequired,
  canGuard = kernelCanGuard,
  ...options
}: SourceGuardOptions): SourceGuard | null {
  if (!canGuard(options.netns)) {
    if (!isRequired) return null;
    throw new FairleadError(`network policies cannot be enforced: ${UNGUARDED}`, {
      op: 'guard pods',
      code: 'missing-kernel-feature',
      hint: 'use a kernel with CONFIG_NF_TABLES_NETDEV, or do without policies: policy: {enforce: false} in the configuration',
    });
  }
  const tables = openTables(options);
  /** Packets that were counted by sets and chains that no longer exist. */
  const before = { forged: 0, stray: 0 };
  const table = () => tables.get('netdev');
  const packets = (chain: string) => table()?.packets(chain) ?? 0;
  before.forged = packets(DROPPED.forged);
  before.stray = packets(DROPPED.stray);
  tables.write('netdev', renderGuard(gatewayMac, ports));
  return {
    async protect(port, isNew) {
      // The chain of an earlier device of this name has lost its device.
      if (isNew) await tables.change('netdev', port.port, null);
      await tables.change('netdev', port.port, renderPort(gatewayMac, port));
      const refused = table()?.refused.get(port.port);
      if (refused) throw refused;
    },
    release: (port) => tables.change('netdev', port, null),
    check: async () => (await tables.check()).map(() => GUARD_TABLE),
    counts: () => ({
      forged: before.forged + packets(DROPPED.forged),
      stray: before.stray + packets(DROPPED.stray),
      byPort: new Map(
        (table()?.read(FORGERS) ?? []).map(({ key, packets: count }) => [nameOf(key), count] as const),
      ),
    }),
    close: () => tables.close(),
  };
}

/** Reads the forged packets of each pod ("namespace/name") from the kernel; empty without a guard. */
export function readForgers(netns?: NetnsRef): Map<string, number> {
  const connection = new NftConnection(netns);
  try {
    const elements = connection.elements(NFPROTO.netdev, GUARD_TABLE, FORGERS);
    return new Map(elements.map(({ comment, packets }) => [comment ?? '', packets]));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'EOPNOTSUPP', 'EAFNOSUPPORT')) return new Map();
    throw error;
  } finally {
    connection.close();
  }
}

/** Returns true if the node has a guard. */
export function hasSourceGuard(netns?: NetnsRef): boolean {
  const connection = new NftConnection(netns);
  try {
    return connection.tables(NFPROTO.netdev).some(({ name }) => name === GUARD_TABLE);
  } catch (error) {
    if (hasCode(error, 'EOPNOTSUPP', 'EAFNOSUPPORT')) return false;
    throw error;
  } finally {
    connection.close();
  }
}

/** Removes the guard from a node. */
export function removeSourceGuard(netns?: NetnsRef): void {
  if (!kernelCanGuard(netns)) return;
  const tables = openTables({ netns });
  try {
    tables.write('netdev', null);
  } finally {
    tables.close();
  }
}

const openTables = (
  options: Pick<SourceGuardOptions, 'netns' | 'owned' | 'clock' | 'logger'>,
): KeptTables<'netdev'> => keepTables({ ...options, families: ['netdev'], name: GUARD_TABLE });

/** Returns true if the kernel knows tables of the family netdev (CONFIG_NF_TABLES_NETDEV). */
function kernelCanGuard(netns: NetnsRef | undefined): boolean {
  const connection = new NftConnection(netns);
  try {
    connection.tables(NFPROTO.netdev);
    const name = `fairlead-guard-probe-${process.pid}`;
    const batch = connection.batch(NFPROTO.netdev);
    batch.addTable(name);
    batch.deleteTable(name);
    connection.commitSync(batch);
    return true;
  } catch (error) {
    if (hasCode(error, 'EOPNOTSUPP', 'EAFNOSUPPORT', 'EINVAL', 'ENOENT')) return false;
    throw error;
  } finally {
    connection.close();
  }
}

const nameOf = (key: Uint8Array): string => Buffer.from(key).toString('latin1').replace(/\0.*$/s, '');
