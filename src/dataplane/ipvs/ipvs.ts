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
import { type ApplyReport, type Drift, withFailures } from '../dataplane.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { applyChange, collectDrained } from './apply-change.ts';
import { applyMap } from './apply-map.ts';
import { DRAIN_MS, drain } from './drain.ts';
import { createDrainPolls } from './drain-polls.ts';
import { TABLE } from './layout.ts';
import { locateSteps } from './locate.ts';
import { DEFAULT_MASQUERADE_BIT, markScheme } from './marks.ts';
import type { IpvsDataplane, IpvsOptions } from './options.ts';
import { ownership } from './ownership.ts';
import type { Kernel, Programmed } from './programmed.ts';
import { prepareDrain, removeAll } from './removal.ts';
import { createSchedulerProbe } from './scheduler-probe.ts';
import {
  type AddressChange,
  compareAddresses,
  findInterface,
  readAddresses,
  watchAddresses,
} from './service-interface.ts';

/**
 * Opens the IPVS mode: virtual servers over generic netlink, an interface with the Services' addresses, and nf_tables
 * rules around them. Throws FairleadError (no-ipvs) on a kernel without IPVS.
 */
export function createIpvs(options: IpvsOptions): IpvsDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
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
  let closed = false;
  // Draining continues between calls.
  const calls = createMutex();
  const polls = createDrainPolls(
    { clock, logger },
    () => !closed && (state?.servers.isDraining ?? false),
    (isGone) =>
      calls.run(async () => {
        if (!closed && state) await collectDrained(kernel, state, isGone);
      }),
  );

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
    polls.start();
    return withFailures(report, [...failed, ...tables.refused], logger);
  }

  function startWatching(): void {
    if (!onForeignChange || closed || watch) return;
    watch = watchAddresses((change) => {
      if (state && isForeign(state, change)) onForeignChange();
    }, netns);
  }

  function unwatch(): void {
    watch?.close();
    watch = null;
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
        return [...compareWithKernel(kernel, state), ...(await tables.verify())];
      }),

    locate: (frontend, packet) => (state ? locateSteps(state, frontend, packet) : []),

    async requireScheduler(name) {
      const error = await calls.run(() => probe.check(name));
      if (error) throw error;
    },

    abilities: {
      ...NO_ABILITIES,
      connections: {
        async end(endpoints) {
          const gone = new Set(endpoints.map(endpointPlace));
          await polls.collect(({ address, port }) => gone.has(`${address} ${port}`));
          return null;
        },
        drain: null,
      },
    },

    async close() {
      closed = true;
      polls.stop();
      unwatch();
      await calls.run(async () => {
        loopback.close();
        ipvs.close();
        tables.close();
      });
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      calls.run(async () => {
        polls.stop();
        unwatch();
        const scheme = state?.scheme ?? markScheme(DEFAULT_MASQUERADE_BIT);
        const { plans = null, node = null, foreign = new Set<string>() } = state ?? {};
        state = null;
        const removal = { families, netns, ipvs, tables, scheme, foreign };
        if (succeeded) {
          await prepareDrain(removal, plans, node);
          drain({ families, netns, scheme, foreign, clock, logger, drainMs: options.drainMs ?? DRAIN_MS });
        } else await removeAll(removal);
        loopback.remove({ succeeded });
      }),
  };
}

/** Returns true if another program made a change of addresses that contradicts the state; null: changes were lost. */
function isForeign({ device, bound, others, uses }: Programmed, change: AddressChange | null): boolean {
  if (change === null) return true;
  const { address, gone } = change;
  if (change.device === device ? bound.has(address) === gone : !gone && bound.has(address)) return true;
  return change.device !== device && gone && others.has(address) && uses.has(address);
}

function compareWithKernel({ families, netns, ipvs }: Kernel, state: Programmed): Drift[] {
  const { ours, others } = readAddresses(findInterface(netns), netns);
  const { scheme, foreign } = state;
  const isOwn = ownership({ families, scheme, foreign }, ours);
  // A server that appeared on one of our addresses belongs to another program: only servers created by this process count.
  const isOurs = (id: ServerId) => 'mark' in id && isOwn(id);
  return [
    ...state.servers.compare(ipvs.servers(), (id) => ipvs.realServers(id), isOurs),
    ...compareAddresses(state.bound, ours, others),
  ];
}
