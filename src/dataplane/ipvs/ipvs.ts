import type { ServerId } from '../../kernel/ipvs/codec.ts';
import { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import { systemClock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import { Tables } from '../../nft/tables.ts';
import type { ServiceMap } from '../../service/model.ts';
import { endpointPlace } from '../../service/pools.ts';
import { NO_ABILITIES } from '../abilities.ts';
import { type ApplyReport, withFailures } from '../dataplane.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { DRAIN_MS, drain } from './drain.ts';
import { TABLE } from './layout.ts';
import { locateSteps } from './locate.ts';
import { DEFAULT_MASQUERADE_BIT, markScheme } from './marks.ts';
import type { IpvsDataplane, IpvsOptions } from './options.ts';
import { ownership } from './ownership.ts';
import type { Programmed } from './programmed.ts';
import { applyChange, applyMap, collectDrained } from './programming.ts';
import { prepareDrain, removeAll } from './removal.ts';
import { createSchedulerProbe } from './scheduler-probe.ts';
import { compareAddresses, findInterface, readAddresses, watchAddresses } from './service-interface.ts';

/** How often the connections to removed endpoints are checked. */
const DRAIN_POLL_MS = 2000;

/**
 * Opens the IPVS mode: virtual servers over generic netlink, an interface with the Services' addresses, and nf_tables
 * rules around them. Throws FairleadError (no-ipvs) on a kernel without IPVS.
 */
export function createIpvs(options: IpvsOptions): IpvsDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const drainMs = options.drainMs ?? DRAIN_MS;
  const ipvs = new IpvsConnection(netns);
  const tables = new Tables({ ...options, name: TABLE });
  const probeMark = markScheme(DEFAULT_MASQUERADE_BIT).of(0x1fffff, false);
  const probe = createSchedulerProbe(ipvs, families, probeMark);
  const kernel = { families, netns, ipvs, tables, probe, clock, options };
  let state: Programmed | null = null;
  // For IPv4 `applySettings` enables it per device.
  const loopback = createLoopbackAccess(
    families.filter((family) => family === 'ipv6'),
    netns,
  );
  let watch: { close(): void } | null = null;
  let cancelPoll: (() => void) | null = null;
  let closed = false;
  // Draining continues between calls.
  const calls = createMutex();

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    unwatch();
    try {
      const { programmed, report } = await applyMap(kernel, map, state);
      state = programmed;
      loopback.allow(map.node.localhostNodePorts);
      return finish(report, programmed);
    } finally {
      startWatching();
    }
  }

  function finish(report: Omit<ApplyReport, 'failed'>, { failed }: Programmed): ApplyReport {
    pollLater();
    return withFailures(report, [...failed, ...tables.refused], logger);
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
      await calls.run(async () => {
        if (closed || !state) return;
        const before = clock.now() - drainMs;
        await collectDrained(
          kernel,
          state,
          (real) => isOver(real) || (real.drainingSince !== null && real.drainingSince <= before),
        );
      });
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'failed to remove drained servers; trying again');
    }
    pollLater();
  }

  function startWatching(): void {
    if (!onForeignChange || closed || watch) return;
    watch = watchAddresses((change) => {
      if (!state) return;
      const { device, bound, others, uses } = state;
      if (change === null) return onForeignChange();
      const { address, gone } = change;
      if (change.device === device ? bound.has(address) === gone : !gone && bound.has(address)) {
        onForeignChange();
      } else if (change.device !== device && gone && others.has(address) && uses.has(address)) {
        onForeignChange();
      }
    }, netns);
  }

  function unwatch(): void {
    watch?.close();
    watch = null;
  }

  function stopPolling(): void {
    cancelPoll?.();
    cancelPoll = null;
  }

  return {
    mode: 'ipvs',
    families,
    sync: (map) => calls.run(() => sync(map)),

    apply: (change, map) =>
      calls.run(async () => {
        if (change.node || !state || state.isStale) return await sync(map);
        try {
          return finish(await applyChange(kernel, state, change), state);
        } catch (error) {
          logger.warn({ error: messageOf(error) }, 'failed to apply a change; programming all of IPVS again');
          return await sync(map);
        }
      }),

    verify: () =>
      calls.run(async () => {
        if (!state) return [];
        const device = findInterface(netns);
        const { ours, others } = readAddresses(device, netns);
        const { scheme, foreign } = state;
        const isOwn = ownership({ families, scheme, foreign }, ours);
        // A server that appeared on one of our addresses belongs to another program: only servers created by this process count.
        const isOurs = (id: ServerId) => 'mark' in id && isOwn(id);
        return [
          ...state.servers.compare(ipvs.servers(), (id) => ipvs.realServers(id), isOurs),
          ...compareAddresses(state.bound, ours, others),
          ...(await tables.verify()),
        ];
      }),

    locate(frontend, packet) {
      const plan = state?.plans.get(frontend.key);
      if (!plan || !state) return [];
      const { hasPods = false } = state.layouts.get(frontend.family) ?? {};
      const bound = frontend.address !== null && state.bound.has(frontend.address);
      return locateSteps(plan, hasPods, frontend, packet, bound);
    },

    requireScheduler: (name) =>
      calls.run(async () => {
        const error = await probe.check(name);
        if (error) throw error;
      }),

    abilities: {
      ...NO_ABILITIES,
      connections: {
        async end(endpoints) {
          const gone = new Set(endpoints.map(endpointPlace));
          await collect(({ address, port }) => gone.has(`${address} ${port}`));
          return null;
        },
        drain: null,
      },
    },

    async close() {
      closed = true;
      stopPolling();
      unwatch();
      await calls.run(async () => {
        loopback.close();
        ipvs.close();
        tables.close();
      });
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      calls.run(async () => {
        stopPolling();
        unwatch();
        const scheme = state?.scheme ?? markScheme(DEFAULT_MASQUERADE_BIT);
        const { plans = null, node = null, foreign = new Set<string>() } = state ?? {};
        state = null;
        const removal = { families, netns, ipvs, tables, scheme, foreign };
        if (succeeded) {
          await prepareDrain(removal, plans, node);
          drain({ families, netns, scheme, foreign, clock, logger, drainMs });
        } else await removeAll(removal);
        loopback.remove({ succeeded });
      }),
  };
}
