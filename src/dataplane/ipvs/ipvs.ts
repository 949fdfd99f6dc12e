import type { ServerId } from '../../kernel/ipvs/codec.ts';
import { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { watchNftables } from '../../kernel/nftables/events.ts';
import { systemClock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { ApplyReport } from '../dataplane.ts';
import { keepLoopbackRoutes, type LoopbackRoutes, removeLoopbackRoutes } from '../loopback-routes.ts';
import { compareNfTable } from '../nf-table.ts';
import { TABLE } from './layout.ts';
import { DRAIN_MS, leave } from './leave.ts';
import { locateSteps } from './locate.ts';
import { DEFAULT_MASQUERADE_BIT, markScheme } from './marks.ts';
import type { IpvsDataplane, IpvsOptions } from './options.ts';
import { ownership } from './ownership.ts';
import { applyChange, applyMap, collectDrained, type Programmed } from './programming.ts';
import { handOver, removeAll } from './removal.ts';
import { createSchedulerProbe } from './scheduler-probe.ts';
import { findInterface, readAddresses, watchAddresses } from './service-interface.ts';
import { compareAddresses } from './verify.ts';

/** How often it is looked whether the connections to endpoints that are gone have been closed. */
const DRAIN_POLL_MS = 2000;

/**
 * The IPVS mode: virtual servers over generic netlink, an interface with the Services' addresses, and nf_tables rules
 * around them. Throws FairleadError (no-ipvs) on a kernel without IPVS.
 */
export function createIpvs(options: IpvsOptions): IpvsDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const drainMs = options.drainMs ?? DRAIN_MS;
  const ipvs = new IpvsConnection(netns);
  const nft = new NftConnection(netns);
  const probeMark = markScheme(DEFAULT_MASQUERADE_BIT).of(0x1fffff, false);
  const probe = createSchedulerProbe(ipvs, families, probeMark);
  const kernel = { families, netns, ipvs, nft, probe, clock, options };
  let state: Programmed | null = null;
  let owned: boolean | null = options.owned === false ? false : null;
  let loopback: LoopbackRoutes | null = null;
  const watches: { close(): void }[] = [];
  let cancelPoll: (() => void) | null = null;
  let last: Promise<unknown> = Promise.resolve();
  let closed = false;

  /** One thing at a time: looking after what drains comes between calls. */
  function exclusively<T>(work: () => Promise<T>): Promise<T> {
    const result = last.then(work);
    last = result.catch(() => {});
    return result;
  }

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    owned ??= nft.canOwnTables(NFPROTO[families[0] ?? 'ipv4']);
    for (const watch of watches.splice(0)) watch.close();
    try {
      const { programmed, report } = await applyMap(kernel, map, state, owned);
      state = programmed;
      answerOnLoopback(map);
      return finish(report);
    } finally {
      startWatching();
    }
  }

  function finish(report: ApplyReport): ApplyReport {
    for (const { key, error } of report.failed) {
      logger.error(
        { frontend: key, error: messageOf(error) },
        'a frontend cannot be programmed as it is wanted',
      );
    }
    pollLater();
    return report;
  }

  function answerOnLoopback(map: ServiceMap): void {
    if (!families.includes('ipv6')) return;
    if (map.node.localhostNodePorts) loopback ??= keepLoopbackRoutes(netns);
    else {
      loopback?.close();
      loopback = null;
    }
  }

  function pollLater(): void {
    if (closed || cancelPoll || !state?.servers.isDraining) return;
    cancelPoll = clock.after(DRAIN_POLL_MS, () => {
      cancelPoll = null;
      void collect(() => false);
    });
  }

  async function collect(isOver: (real: { address: string; port: number }) => boolean): Promise<void> {
    try {
      await exclusively(async () => {
        if (closed || !state) return;
        const before = clock.now() - drainMs;
        await collectDrained(
          kernel,
          state,
          (real) => isOver(real) || (real.drainingSince !== null && real.drainingSince <= before),
        );
      });
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'drained servers could not be removed; trying again');
    }
    pollLater();
  }

  function startWatching(): void {
    if (!onForeignChange || closed || watches.length > 0) return;
    watches.push(
      watchAddresses((change) => {
        if (!state) return;
        const { device, bound, others, uses } = state;
        if (change === null) return onForeignChange();
        const { address, gone } = change;
        if (change.device === device ? bound.has(address) === gone : !gone && bound.has(address)) {
          onForeignChange();
        } else if (change.device !== device && gone && others.has(address) && uses.has(address)) {
          onForeignChange();
        }
      }, netns),
    );
    if (owned) return;
    const ours = new Set(families.map((family) => `${NFPROTO[family]} ${TABLE}`));
    watches.push(
      watchNftables(
        (transaction) => {
          if (nft.wrote(transaction.sequence)) return;
          if ([...transaction.tables].some((table) => ours.has(table))) onForeignChange();
        },
        onForeignChange,
        netns,
      ),
    );
  }

  return {
    mode: 'ipvs',
    families,
    sync: (map) => exclusively(() => sync(map)),

    apply: (change, map) =>
      exclusively(async () => {
        if (change.node || !state || state.isStale) return await sync(map);
        try {
          return finish(await applyChange(kernel, state, change, map));
        } catch (error) {
          logger.warn({ error: messageOf(error) }, 'programming IPVS anew');
          return await sync(map);
        }
      }),

    verify: () =>
      exclusively(async () => {
        if (!state) return [];
        const device = findInterface(netns);
        const { ours, others } = readAddresses(device, netns);
        const ofOurs = ownership(state.scheme, ours, families);
        // One that came to an address of ours is another program's: only what this one has made is compared.
        const isOurs = (id: ServerId) => 'mark' in id && ofOurs(id);
        return [
          ...state.servers.compare(ipvs.servers(), (id) => ipvs.realServers(id), isOurs),
          ...compareAddresses(state.bound, ours, others),
          ...[...state.tables.values()].flatMap((table) => compareNfTable(nft, table.family, TABLE, table)),
        ];
      }),

    locate(frontend, packet) {
      const table = state?.tables.get(frontend.family);
      const plan = state?.plans.get(frontend.key);
      if (!table || !plan || !state) return [];
      const bound = frontend.address !== null && state.bound.has(frontend.address);
      return locateSteps(table, plan, frontend, packet, bound);
    },

    requireScheduler: (name) =>
      exclusively(async () => {
        const error = await probe.check(name);
        if (error) throw error;
      }),

    endConnections(endpoints) {
      const gone = new Set(endpoints.map(({ ip, port }) => `${ip} ${port}`));
      return collect(({ address, port }) => gone.has(`${address} ${port}`));
    },

    async close() {
      closed = true;
      cancelPoll?.();
      cancelPoll = null;
      for (const watch of watches.splice(0)) watch.close();
      await last;
      loopback?.close();
      ipvs.close();
      nft.close();
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      exclusively(async () => {
        cancelPoll?.();
        cancelPoll = null;
        for (const watch of watches.splice(0)) watch.close();
        loopback?.close();
        loopback = null;
        const scheme = state?.scheme ?? markScheme(DEFAULT_MASQUERADE_BIT);
        const { plans = null, node = null, foreign = new Set<string>() } = state ?? {};
        state = null;
        const removal = { families, netns, ipvs, nft, scheme, foreign };
        if (succeeded) {
          await handOver(removal, plans, node);
          leave({ families, netns, scheme, foreign, clock, logger, drainMs });
          return;
        }
        await removeAll(removal);
        if (families.includes('ipv6')) removeLoopbackRoutes(netns);
      }),
  };
}
