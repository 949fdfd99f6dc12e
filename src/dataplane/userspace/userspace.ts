import type { Outcome } from '../../failover/outcome.ts';
import type { IPFamily, SocketAddress } from '../../lib/address.ts';
import { pause, systemClock } from '../../lib/clock.ts';
import { errorOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { recordOf } from '../../lib/record-of.ts';
import { createMutex } from '../../lib/semaphore.ts';
import { openRuleQueue } from '../../nft/rule-queue.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import { Tables } from '../../nft/tables.ts';
import {
  type Change,
  type Frontend,
  type FrontendKey,
  type ServiceMap,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import {
  type Abilities,
  type FlowSource,
  NO_ABILITIES,
  type OwnConnections,
  type OwnListeners,
} from '../abilities.ts';
import { type ApplyReport, type Dataplane, type DataplaneOptions, withFailures } from '../dataplane.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { CLUSTER_IPS, changeAddressSet } from '../rules/address-elements.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { admitting } from './connection-gate.ts';
import { LISTENERS, TABLE } from './layout.ts';
import { ListenerTable } from './listener-table.ts';
import { locateSteps } from './locate.ts';
import { listenerOpener, type PoolListener, type ProxyPolicies } from './pool-listener.ts';
import { endpointsAt } from './pool-proxy.ts';
import {
  listenerOwner,
  type ProgrammedFrontend,
  readListenerKey,
  renderFrontend,
  renderListener,
  renderTable,
  type Target,
} from './render.ts';
import { compareListeners } from './verify.ts';

export interface UserspaceOptions extends DataplaneOptions {
  /** 0 to 1; the random start of each pool's round robin. */
  readonly random?: () => number;
  readonly policies?: ProxyPolicies;
  /** Reports outcomes of connections to endpoints: failures, and the first answer after one. */
  readonly onOutcome?: (outcome: Outcome) => void;
}

export interface UserspaceDataplane extends Dataplane {
  /** The listener's address of each pool. */
  listeners(): readonly Pick<PoolListener, 'pool' | 'protocol' | 'at' | 'endpoints'>[];
  /** The current number of connections and UDP clients. */
  connections(): number;
  readonly abilities: Abilities & {
    /** Clients of TCP connections that are ended are reset. */
    readonly connections: OwnConnections & { drain(signal: AbortSignal): Promise<number> };
    readonly listeners: OwnListeners;
    readonly flows: FlowSource;
  };
}

/** How often `drain` counts the connections. */
const COUNT_MS = 20;
/** A frontend in the tables. */
interface Programmed extends ProgrammedFrontend {
  readonly group: ElementGroup;
}

/**
 * Opens the userspace mode: a listener for each pool of endpoints, on a random port of the node's address, to which a
 * small nf_tables table redirects packets to the pool's frontends. The rules choose the listener, or none, by source
 * class; this process chooses the endpoint, and tries the next one if it fails. Servers see the node's address.
 */
export function createUserspace(options: UserspaceOptions): UserspaceDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, random = Math.random } = options;
  const tables = new Tables({ ...options, name: TABLE });
  const watchers = createFlowWatchers();
  const open = listenerOpener({
    ...{ netns, clock, random, logger },
    policies: options.policies,
    onOutcome: options.onOutcome,
    onFlow: watchers.tell,
    isWatched: watchers.isWatched,
  });
  const listeners = new ListenerTable({ open, clock, netns, logger });
  const decide = admitting((at) => listeners.at('TCP', at));
  const gate = options.policies ? openRuleQueue(tables.connection, { netns, logger, decide }) : null;
  const programmed = new Map<FrontendKey, Programmed>();
  const failures = new Map<FrontendKey, Error>();
  let succeeded = false;
  let current: ServiceMap | null = null;
  let removed = false;
  const calls = createMutex();
  const loopback = createLoopbackAccess(families, netns);

  const program = (frontend: Frontend) =>
    programFrontend(frontend, listeners, (error) => failures.set(frontend.key, errorOf(error)));

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    const started = performance.now();
    const earlier = tables.areWritten ? new Map<string, SocketAddress>() : earlierListeners(tables);
    removed = false;
    current = map;
    failures.clear();
    programmed.clear();
    listeners.restart(map.node, earlier);
    for (const frontend of map.frontends.values()) {
      const state = families.includes(frontend.family) ? program(frontend) : null;
      if (state) programmed.set(frontend.key, state);
    }
    listeners.sweep();
    const encodeMs = performance.now() - started;
    const committed = await tables.replace((family) =>
      renderTable(family, map.node, {
        frontends: groupsOf(programmed, family),
        listeners,
        clusterIPs: map.clusterIPs.keys(),
        gate: gate?.statement ?? null,
      }),
    );
    listeners.retire(succeeded);
    return report(committed, encodeMs);
  }

  async function apply(change: Change, map: ServiceMap): Promise<ApplyReport> {
    if (change.node || !tables.areWritten) return await sync(map);
    current = map;
    const started = performance.now();
    const groups = new Map(families.map((family) => [family, new Map<string, ElementGroup | null>()]));
    for (const { key, before, after } of change.frontends) {
      const ofFamily = groups.get((after ?? before)?.family ?? 'ipv4');
      if (!ofFamily) continue;
      failures.delete(key);
      // Acquired before the previous one is released, so that unchanged listeners stay open.
      const state = after && program(after);
      for (const pool of programmed.get(key)?.pools ?? []) listeners.release(pool);
      if (state) programmed.set(key, state);
      else programmed.delete(key);
      ofFamily.set(key, state?.group ?? null);
    }
    const swept = listeners.sweep();
    for (const listener of swept.unused) groups.get(listener.family)?.set(listenerOwner(listener), null);
    for (const listener of swept.opened) {
      groups.get(listener.family)?.set(listenerOwner(listener), renderListener(listener));
    }
    for (const [family, ofFamily] of groups) {
      changeAddressSet(ofFamily, CLUSTER_IPS, family, change.clusterIPs);
    }
    const encodeMs = performance.now() - started;
    const committed = await tables.change(groups);
    listeners.retire(succeeded);
    return report(committed, encodeMs);
  }

  const connections = (): number => [...listeners.all()].reduce((sum, { proxy }) => sum + proxy.active, 0);

  const report = (committed: CommitReport, encodeMs: number): ApplyReport =>
    withFailures(
      { ...committed, encodeMs: committed.encodeMs + encodeMs },
      [...failures, ...tables.refused],
      logger,
    );

  return {
    mode: 'userspace',
    families,
    sync: (map) => calls.run(() => sync(map)),
    apply: (change, map) => calls.run(() => apply(change, map)),

    verify: () =>
      calls.run(async () => {
        if (!current) return [];
        return [...(await tables.verify()), ...compareListeners(listeners, netns)];
      }),

    locate(frontend, packet) {
      const state = programmed.get(frontend.key);
      return state ? locateSteps(state, packet, (pool) => listeners.get(pool)) : [];
    },

    listeners: () => [...listeners].map(shown),

    connections,

    abilities: {
      ...NO_ABILITIES,
      connections: {
        async end(endpoints) {
          const isGone = endpointsAt(endpoints);
          return [...listeners.all()].reduce((sum, { proxy }) => sum + proxy.end(isGone), 0);
        },
        async drain(signal) {
          const isDone = () => !listeners.areLingering && connections() === 0;
          while (!signal.aborted && !isDone()) await pause(clock, COUNT_MS, signal);
          const left = connections();
          listeners.reset();
          return left;
        },
      },
      // Connection tracking is checked for UDP only.
      listeners: { has: (at) => listeners.at('UDP', at)?.proxy.listening ?? false },
      // Connection tracking sees only the listeners, not their endpoints.
      flows: { watch: watchers.watch, isComplete: true },
    },

    async close() {
      tables.unwatch();
      // Closing a listener resets the connections in its backlog.
      if (succeeded) await listeners.lingered();
      // After `remove` another mode handles new connections; established ones continue until they end.
      await listeners.close({ keepsConnections: removed });
      gate?.close();
      await listeners.forgotten();
      tables.close();
    },

    remove: (options = { succeeded: false }) =>
      calls.run(async () => {
        succeeded = options.succeeded;
        const earlier = tables.areWritten ? [] : [...earlierListeners(tables).values()];
        loopback.remove({ succeeded });
        await tables.remove(() => gate?.idle() ?? Promise.resolve());
        programmed.clear();
        current = null;
        removed = true;
        failures.clear();
        listeners.releaseAll();
        listeners.sweep();
        listeners.retire(succeeded);
        await listeners.forget(earlier);
      }),
  };
}

/** Returns the listeners of an earlier process. */
function earlierListeners(tables: Tables): Map<string, SocketAddress> {
  const earlier = new Map<string, SocketAddress>();
  for (const table of tables) {
    for (const { key, comment } of table.read(LISTENERS)) {
      earlier.set(comment ?? `${earlier.size}`, readListenerKey(key, table.family));
    }
  }
  return earlier;
}

/** Acquires the listeners of a frontend. Returns null, and reports the failure, if that is not possible. */
function programFrontend(
  frontend: Frontend,
  listeners: ListenerTable,
  fail: (error: unknown) => void,
): Programmed | null {
  const pools = new Set<string>();
  const target = (source: SourceClass): Target => {
    const route = frontend.routes[source];
    if (route.action !== 'forward') return route.action;
    try {
      const taken = pools.has(route.pool.id) ? listeners.get(route.pool.id) : undefined;
      const { at } = taken ?? listeners.take(route.pool, frontend);
      pools.add(route.pool.id);
      return at;
    } catch (error) {
      fail(error);
      return 'reject';
    }
  };
  const targets = recordOf(SOURCE_CLASSES, target);
  const state = { frontend, targets, pools: [...pools] };
  try {
    return { ...state, group: renderFrontend(state) };
  } catch (error) {
    fail(error);
    for (const pool of pools) listeners.release(pool);
    return null;
  }
}

function createFlowWatchers() {
  const watchers = new Set<OnFlowEvent>();
  const tell: OnFlowEvent = (event) => {
    for (const watcher of watchers) watcher(event);
  };
  return {
    tell,
    isWatched: () => watchers.size > 0,
    watch(onEvent: OnFlowEvent): { close(): void } {
      // Wrapped in a new function: the same callback may subscribe twice.
      const watcher: OnFlowEvent = (event) => onEvent(event);
      watchers.add(watcher);
      return { close: () => void watchers.delete(watcher) };
    },
  };
}

const groupsOf = (programmed: ReadonlyMap<FrontendKey, Programmed>, family: IPFamily) =>
  [...programmed].flatMap(([key, { frontend, group }]) =>
    frontend.family === family ? [{ key, group }] : [],
  );

const shown = ({ pool, protocol, at, endpoints }: PoolListener) => ({ pool, protocol, at, endpoints });
