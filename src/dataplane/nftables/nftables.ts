import { errnoName } from '../../kernel/libc.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { NftBatch } from '../../kernel/nftables/batch.ts';
import { NftConnection, NftRefusal } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { watchNftables } from '../../kernel/nftables/events.ts';
import { readSysctl, writeSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { FrontendKey, ServiceMap } from '../../service/model.ts';
import type { ApplyReport, Dataplane } from '../dataplane.ts';
import { keepLoopbackRoutes, type LoopbackRoutes, removeLoopbackRoutes } from '../loopback-routes.ts';
import { compareNfTable } from '../nf-table.ts';
import { forgetClients } from './affinity.ts';
import { FamilyTable } from './family-table.ts';
import { TABLE } from './layout.ts';
import { locateSteps } from './locate.ts';
import type { Forgotten } from './remembered-clients.ts';
import { TableFull } from './sized-sets.ts';

export interface NftablesOptions {
  readonly families: readonly IPFamily[];
  /** Where to program; default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /**
   * Called when somebody else has changed our tables: call `verify`, then `sync`. Cannot happen to tables that are
   * owned, and then nothing is watched, which would make large transactions dearer.
   */
  readonly onForeignChange?: () => void;
  /** The tables are this process's own, and survive it, where the kernel can (6.9). Default: true. */
  readonly owned?: boolean;
  /**
   * Name of the tables; default "fairlead". Another mode that stands on these tables names its own, so that the two
   * modes can be there at once while a node goes from one to the other.
   */
  readonly table?: string;
}

export interface NftablesDataplane extends Dataplane {
  /** Calls back when somebody else has changed our tables. */
  watchDrift(onDrift: () => void): { close(): void };
}

const ROUTE_LOCALNET = 'net.ipv4.conf.all.route_localnet';
/** Slots that nothing leads to any more are deleted after this long: no packet is under way longer. */
const STALE_MS = 20;
/** A transaction is tried again this often when others commit in between. */
const ATTEMPTS = 8;
/** And this often more, to leave out what the kernel refuses. */
const REFUSALS = 6;

/**
 * The nftables mode, over netlink: one table `fairlead` in `ip` and `ip6`, whose chains are shared by all Services;
 * a Service is elements of maps, so that what a change costs depends on the change alone.
 */
export function createNftables(options: NftablesOptions): NftablesDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const tableName = options.table ?? TABLE;
  const connection = new NftConnection(netns);
  const tables = new Map<IPFamily, FamilyTable>();
  let owned: boolean | null = options.owned === false ? false : null;
  let current: ServiceMap | null = null;
  let loopback: LoopbackRoutes | null = null;
  let watch: { close(): void } | null = null;
  let cancelCleaning: (() => void) | null = null;
  const calls = createMutex();

  function isOwned(): boolean {
    owned ??= connection.canOwnTables(NFPROTO[families[0] ?? 'ipv4']);
    return owned;
  }

  async function syncFamily(family: IPFamily, map: ServiceMap, tally: Tally): Promise<void> {
    const protocol = NFPROTO[family];
    const refused = new Map<FrontendKey, Error>();
    // To ask takes a transaction: asked later, it would make the generation stale that is read below.
    const owned = isOwned();
    let named = false;
    for (let attempt = 1; ; attempt++) {
      const started = performance.now();
      const generation = connection.generation();
      const replace = connection.tables(protocol).some(({ name }) => name === tableName);
      const remembered = replace ? rememberedClients(protocol) : [];
      const read = performance.now();
      const table = new FamilyTable(family, map.node, tableName);
      // Without a check on the last try: a machine whose rules others change all the time is no reason to give up.
      const batch = connection.batch(protocol, {
        capacity: 1 << 20,
        ...(attempt < ATTEMPTS ? { generation } : {}),
      });
      table.create(batch, map, { owned, replace, refused, named });
      table.restoreAffinity(batch, remembered);
      const encoded = performance.now();
      try {
        await connection.commit(batch);
      } catch (error) {
        if (attempt >= ATTEMPTS + REFUSALS) throw error;
        if (attempt < ATTEMPTS && hasCode(error, 'ERESTART', 'errno 85')) continue;
        if (!(error instanceof NftRefusal) || hasCode(error, 'EPERM')) throw error;
        // Some frontends are refused: they are found by a transaction that names them, and left out of the next.
        const found = named ? refusalsByFrontend(batch, error) : null;
        if (found?.size === 0) throw error;
        logger.warn({ family, error: messageOf(error) }, 'the kernel refuses a part of the nf_tables table');
        for (const [key, reason] of found ?? []) refused.set(key, reason);
        named = !named;
        continue;
      }
      tables.set(family, table);
      tally.operations += batch.operations;
      tally.encodeMs += encoded - read;
      tally.kernelMs += performance.now() - encoded + (read - started);
      return;
    }
  }

  function rememberedClients(protocol: number) {
    try {
      return connection.elements(protocol, tableName, 'affinity');
    } catch (error) {
      // A table of an earlier release, or one that somebody took the map from.
      if (hasCode(error, 'ENOENT')) return [];
      throw error;
    }
  }

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    const tally = newTally();
    cancelCleaning?.();
    current = map;
    const wasWatching = watch !== null;
    watch?.close();
    watch = null;
    try {
      for (const family of families) await syncFamily(family, map, tally);
      allowLoopback(map);
    } finally {
      if (wasWatching || onForeignChange) startWatch();
    }
    return report(tally);
  }

  function startWatch(): void {
    if (watch || isOwned() || !onForeignChange) return;
    watch = watchDrift(onForeignChange);
  }

  function watchDrift(onDrift: () => void): { close(): void } {
    const ours = new Set(families.map((family) => `${NFPROTO[family]} ${tableName}`));
    return watchNftables(
      (transaction) => {
        if (connection.wrote(transaction.sequence)) return;
        if ([...transaction.tables].some((table) => ours.has(table))) onDrift();
      },
      onDrift,
      netns,
    );
  }

  /** Node ports on loopback addresses; IPv4's after its guard is in place. */
  function allowLoopback(map: ServiceMap): void {
    if (!map.node.localhostNodePorts) {
      loopback?.close();
      loopback = null;
      return;
    }
    if (families.includes('ipv4')) writeSysctl(ROUTE_LOCALNET, 1, netns);
    if (families.includes('ipv6')) loopback ??= keepLoopbackRoutes(netns);
  }

  function report(tally: Tally): ApplyReport {
    const failed = [...tables.values()].flatMap((table) =>
      [...table.failed].map(([key, error]) => ({ key, error })),
    );
    for (const { key, error } of failed) {
      logger.error({ frontend: key, error: messageOf(error) }, 'a frontend cannot be programmed');
    }
    return { ...tally, failed };
  }

  function removeStale(): void {
    if (calls.busy) {
      cleanLater();
      return;
    }
    for (const [family, table] of tables) {
      if (!table.hasStale) continue;
      const batch = connection.batch(NFPROTO[family]);
      table.removeStale(batch);
      try {
        connection.commitSync(batch);
      } catch (error) {
        logger.warn({ family, error: messageOf(error) }, 'the nf_tables maps are not as they were left');
        onForeignChange?.();
      }
    }
  }

  function cleanLater(): void {
    cancelCleaning?.();
    cancelCleaning = clock.after(STALE_MS, () => {
      cancelCleaning = null;
      removeStale();
    });
  }

  return {
    mode: 'nftables',
    families,
    sync: (map) => calls.run(() => sync(map)),
    watchDrift,

    apply: (change, map) =>
      calls.run(async () => {
        if (change.node || tables.size < families.length) return await sync(map);
        current = map;
        const tally = newTally();
        for (const family of families) {
          const table = tables.get(family);
          if (!table) continue;
          const started = performance.now();
          const batch = connection.batch(NFPROTO[family]);
          let forgotten: Forgotten;
          let encoded = started;
          try {
            forgotten = table.change(batch, change);
            encoded = performance.now();
            await connection.commit(batch);
          } catch (error) {
            // Too small a map is ours to know; a refusal means that the kernel is not as it was left.
            if (!(error instanceof TableFull)) {
              logger.warn({ family, error: messageOf(error) }, 'writing the nf_tables table anew');
            }
            tables.delete(family);
            await syncFamily(family, map, tally);
            continue;
          }
          tally.operations += batch.operations;
          tally.encodeMs += encoded - started;
          if (forgotten.size > 0) forgetClients(connection, table, forgotten);
          tally.kernelMs += performance.now() - encoded;
        }
        if ([...tables.values()].some((table) => table.hasStale)) cleanLater();
        return report(tally);
      }),

    verify: () =>
      calls.run(async () => {
        if (!current) return [];
        return families.flatMap((family) =>
          compareNfTable(connection, family, tableName, tables.get(family) ?? null),
        );
      }),

    locate(frontend, packet) {
      const table = tables.get(frontend.family);
      return table ? locateSteps(table, frontend, packet) : [];
    },

    async close() {
      cancelCleaning?.();
      cancelCleaning = null;
      removeStale();
      watch?.close();
      loopback?.close();
      connection.close();
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      calls.run(async () => {
        cancelCleaning?.();
        cancelCleaning = null;
        watch?.close();
        watch = null;
        loopback?.close();
        loopback = null;
        tables.clear();
        current = null;
        let guarded = false;
        for (const family of families) {
          const protocol = NFPROTO[family];
          if (!connection.tables(protocol).some(({ name }) => name === tableName)) continue;
          guarded ||= connection.chains(protocol, tableName).includes('guard-loopback');
          if (!succeeded && guarded && readSysctl(ROUTE_LOCALNET, netns) === '1')
            writeSysctl(ROUTE_LOCALNET, 0, netns);
          await connection.removeTable(protocol, tableName);
        }
        if (!succeeded && families.includes('ipv6')) removeLoopbackRoutes(netns);
      }),
  };
}

/** The frontends that refused messages were written for, each with the kernel's reason. */
function refusalsByFrontend(batch: NftBatch, { refusals }: NftRefusal): Map<FrontendKey, Error> {
  const found = new Map<FrontendKey, Error>();
  for (const { sequence, errno } of refusals) {
    const key = batch.owner(sequence);
    if (key === null || found.has(key)) continue;
    const object = batch.object(sequence);
    const code = errnoName(errno);
    found.set(
      key,
      new FairleadError(`the kernel refused ${object} for ${key}: ${code}`, {
        op: 'program nf_tables',
        code,
        object: key,
      }),
    );
  }
  return found;
}

interface Tally {
  encodeMs: number;
  kernelMs: number;
  operations: number;
}

const newTally = (): Tally => ({ encodeMs: 0, kernelMs: 0, operations: 0 });
