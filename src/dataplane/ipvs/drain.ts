import type { VirtualServer } from '../../kernel/ipvs/codec.ts';
import { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { Tables } from '../../nft/tables.ts';
import { readConnected } from './connections.ts';
import { DRAIN_TABLE } from './drain-table.ts';
import { restoreSettings } from './kernel-settings.ts';
import { DEFAULT_MASQUERADE_BIT, type MarkScheme, markScheme } from './marks.ts';
import { ownership } from './ownership.ts';
import { serverKey, serverOrder } from './server-table.ts';
import { changeAddresses, findInterface, readAddresses, removeInterface } from './service-interface.ts';
import { sourcesInUse } from './source-addresses.ts';

const POLL_MS = 2000;
/** How long connections to endpoints that no longer serve may stay open by default. */
export const DRAIN_MS = 3_600_000;

export interface DrainOptions {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly scheme: MarkScheme;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Servers of other programs on addresses of ours, by `serverKey`, as far as they are known. */
  readonly foreign: ReadonlySet<string>;
  /** Connections that are still open after so many milliseconds end. */
  readonly drainMs: number;
}

/**
 * Removes virtual servers once their connections have ended, then all that is left of the mode. Does not keep a process
 * alive for that: the next one goes on (`resumeDrain`).
 */
export function drain(options: DrainOptions): void {
  const { netns, clock, logger, drainMs } = options;
  const until = clock.now() + drainMs;
  const look = async (): Promise<boolean> => {
    try {
      return await endIdle(options, clock.now() >= until);
    } catch (error) {
      // The node's namespace is gone, and all of it with it.
      if (netns !== undefined && hasCode(error, 'ENOENT')) return true;
      logger.warn({ error: messageOf(error) }, 'failed to drain IPVS connections; trying again');
      return false;
    }
  };
  // Not at once: an answer to a datagram that was sent from one of the addresses may be on its way.
  const timer = setInterval(() => {
    void look().then((done) => {
      if (done) clearInterval(timer);
    });
  }, POLL_MS);
  timer.unref();
}

/** Goes on with a drain that an earlier process began, if there is one. */
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

/** True: nothing is left, or the mode is in use again. */
async function endIdle({ families, netns, scheme, foreign }: DrainOptions, all: boolean): Promise<boolean> {
  const tables = new Tables({ families, netns, name: DRAIN_TABLE, owned: false });
  const ipvs = new IpvsConnection(netns);
  try {
    if (![...tables].some((table) => table.exists())) return true;
    const device = findInterface(netns);
    const { ours } = readAddresses(device, netns);
    const isOurs = ownership(scheme, ours, families);
    const connected = all ? new Set<string>() : readConnected(netns);
    const batch = ipvs.batch();
    const kept = new Set<string>();
    const others: VirtualServer[] = [];
    let left = 0;
    for (const server of ipvs.servers().sort((a, b) => serverOrder(b.id, a.id))) {
      const { id } = server;
      if (!isOurs(id) || foreign.has(serverKey(id))) {
        others.push(server);
        continue;
      }
      const reals = ipvs.realServers(id);
      // Behind a mark, clients have asked for any address of the node.
      const asked = 'address' in id ? `${id.address} ${id.port} ` : '';
      const idle = reals.filter(({ address, port }) => !connected.has(`${asked}${address} ${port}`));
      if (idle.length === reals.length) {
        batch.deleteServer(id);
        continue;
      }
      for (const real of idle) batch.deleteRealServer(id, real);
      left++;
      if ('address' in id) kept.add(id.address);
    }
    await ipvs.commit(batch);
    if (!all) for (const address of sourcesInUse(ours, families, netns)) kept.add(address);
    if (left > 0 || kept.size > 0) {
      const gone = [...ours].filter((address) => !kept.has(address));
      if (device !== null) await changeAddresses(device, [], gone, netns);
      return false;
    }
    removeInterface(netns);
    await tables.remove();
    restoreSettings({ shared: others.length > 0 }, netns);
    return true;
  } finally {
    ipvs.close();
    tables.close();
  }
}

/** Opens the drain tables for as long as `use` takes. */
export async function drainTables<T>(
  families: readonly IPFamily[],
  netns: NetnsRef | undefined,
  use: (tables: Tables) => Promise<T>,
): Promise<T> {
  const tables = new Tables({ families, netns, name: DRAIN_TABLE, owned: false });
  try {
    return await use(tables);
  } finally {
    tables.close();
  }
}

/** Ends the drain of this or another process, if there is one; true when there was. */
export function endDraining(families: readonly IPFamily[], netns: NetnsRef | undefined): Promise<boolean> {
  return drainTables(families, netns, async (tables) => {
    const wasDraining = [...tables].some((table) => table.exists());
    if (wasDraining) await tables.remove();
    return wasDraining;
  });
}
