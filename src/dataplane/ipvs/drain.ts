import { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { Tables } from '../../nft/tables.ts';
import { DRAIN_TABLE } from './drain-table.ts';
import { hasOpenConnections, readConnected } from './idle.ts';
import { restoreSettings } from './kernel-settings.ts';
import { DEFAULT_MASQUERADE_BIT, markScheme } from './marks.ts';
import { type Owner, ownServers } from './ownership.ts';
import { changeAddresses, findInterface, readAddresses, removeInterface } from './service-interface.ts';
import { sourcesInUse } from './source-addresses.ts';

const POLL_MS = 2000;
/** Virtual servers in one batch, which is so short that the kernel's answer is read at once. */
const SERVERS_AT_ONCE = 100;
/** How long connections to removed endpoints may stay open by default. */
export const DRAIN_MS = 3_600_000;

export interface DrainOptions extends Owner {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The time in milliseconds after which open connections are ended. */
  readonly drainMs: number;
}

/**
 * Removes virtual servers after their connections have ended, then the rest of the mode. Does not keep the process alive:
 * the next one continues (`resumeDrain`).
 */
export function drain(options: DrainOptions): void {
  const { netns, clock, logger, drainMs } = options;
  const until = clock.now() + drainMs;
  const poll = async (): Promise<void> => {
    try {
      if (await endIdle(options, clock.now() >= until)) return;
    } catch (error) {
      // The node's namespace was removed with all its contents.
      if (netns !== undefined && hasCode(error, 'ENOENT')) return;
      logger.warn({ error: messageOf(error) }, 'failed to drain IPVS connections; trying again');
    }
    pollLater();
  };
  // Delayed: a reply to a datagram from one of the addresses may be in flight. After one has ended: thousands of servers take
  // longer than the interval.
  const pollLater = () => void setTimeout(poll, POLL_MS).unref();
  pollLater();
}

/** Continues the drain of an earlier process, if there is one. */
export async function resumeDrain(
  options: Pick<DrainOptions, 'families' | 'clock' | 'logger'> & { readonly netns?: NetnsRef },
): Promise<void> {
  const all = {
    netns: undefined,
    ...options,
    scheme: markScheme(DEFAULT_MASQUERADE_BIT),
    foreign: new Set<string>(),
    drainMs: DRAIN_MS,
  };
  if (!(await endIdle(all, false))) drain(all);
}

/** Removes idle servers. Returns true if none are left, or the mode is in use again. */
async function endIdle(options: DrainOptions, all: boolean): Promise<boolean> {
  const { families, netns } = options;
  using tables = openDrainTables(families, netns);
  if (!tables.exist) return true;
  using ipvs = new IpvsConnection(netns);
  const device = findInterface(netns);
  const { ours } = readAddresses(device, netns);
  const { own, shared } = ownServers(ipvs, options, ours);
  const connected = all ? new Set<string>() : readConnected(netns);
  const kept = new Set<string>();
  let left = 0;
  for (let at = 0; at < own.length; at += SERVERS_AT_ONCE) {
    // The mode may be in use again, with these servers: a packet to a deleted one is dropped.
    if (!tables.exist) return true;
    const batch = ipvs.batch();
    for (const { id } of own.slice(at, at + SERVERS_AT_ONCE)) {
      const reals = ipvs.realServers(id);
      const idle = all ? reals : reals.filter((real) => !hasOpenConnections(id, real, connected));
      if (idle.length === reals.length) {
        batch.deleteServer(id);
        continue;
      }
      for (const real of idle) batch.deleteRealServer(id, real);
      left++;
      if ('address' in id) kept.add(id.address);
    }
    await ipvs.commit(batch);
  }
  if (!tables.exist) return true;
  if (!all) for (const address of sourcesInUse(ours, families, netns)) kept.add(address);
  if (left > 0 || kept.size > 0) {
    const gone = [...ours].filter((address) => !kept.has(address));
    if (device !== null) await changeAddresses(device, [], gone, netns);
    return false;
  }
  // The interface without addresses, because arp_ignore is restored; it has the record of the settings, for the next process
  // if this one is killed. No step may follow the removal of the tables, after which the mode may be in use again.
  if (device !== null) await changeAddresses(device, [], ours, netns);
  restoreSettings({ shared }, netns);
  removeInterface(netns);
  await tables.remove();
  return true;
}

/** Opens the tables that mark a drain, on a separate connection. */
export const openDrainTables = (families: readonly IPFamily[], netns: NetnsRef | undefined): Tables =>
  new Tables({ families, netns, name: DRAIN_TABLE, owned: false });

/** Ends the drain of this or another process. Returns true if there was one. */
export async function endDraining(
  families: readonly IPFamily[],
  netns: NetnsRef | undefined,
): Promise<boolean> {
  using tables = openDrainTables(families, netns);
  const wasDraining = tables.exist;
  if (wasDraining) await tables.remove();
  return wasDraining;
}
