import type { Outcome } from '../../failover/outcome.ts';
import type { SocketAddress } from '../../lib/address.ts';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import { openRuleQueue } from '../../nft/rule-queue.ts';
import type { CommitReport } from '../../nft/table.ts';
import { Tables } from '../../nft/tables.ts';
import type { Change, ServiceMap } from '../../service/model.ts';
import {
  type Abilities,
  type FlowSource,
  NO_ABILITIES,
  type OwnConnections,
  type OwnListeners,
} from '../abilities.ts';
import { type ApplyReport, type Dataplane, type DataplaneOptions, withFailures } from '../dataplane.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { admitting } from './connection-gate.ts';
import { FrontendTable } from './frontend-table.ts';
import { LISTENERS, TABLE } from './layout.ts';
import { ListenerTable } from './listener-table.ts';
import { locateSteps } from './locate.ts';
import { listenerOpener, type PoolListener, type ProxyPolicies } from './pool-listener.ts';
import { readListenerKey, renderTable } from './render.ts';
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

/**
 * Opens the userspace mode: a listener for each pool of endpoints, on a random port of the node's address, to which a
 * small nf_tables table redirects packets to the pool's frontends. The rules choose the listener, or none, by source
 * class; this process chooses the endpoint, and tries the next one if it fails. Servers see the node's address.
 */
export function createUserspace(options: UserspaceOptions): UserspaceDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, random = Math.random } = options;
  const tables = new Tables({ ...options, name: TABLE });
  const watchers = createFlowWatchers();
  const { policies, onOutcome } = options;
  const { tell: onFlow, isWatched } = watchers;
  const open = listenerOpener({ netns, clock, random, logger, policies, onOutcome, onFlow, isWatched });
  const listeners = new ListenerTable({ open, clock, netns, logger });
  const decide = admitting((at) => listeners.at('TCP', at));
  const gate = policies ? openRuleQueue(tables.connection, { netns, logger, decide }) : null;
  const frontends = new FrontendTable(families, listeners);
  let succeeded = false;
  let current: ServiceMap | null = null;
  let removed = false;
  const calls = createMutex();
  const loopback = createLoopbackAccess(families, netns);

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    const started = performance.now();
    const earlier = tables.areWritten ? new Map<string, SocketAddress>() : earlierListeners(tables);
    removed = false;
    current = map;
    listeners.restart(map.node, earlier);
    frontends.fill(map);
    const encodeMs = performance.now() - started;
    const committed = await tables.replace((family) =>
      renderTable(family, map.node, {
        frontends: frontends.groups(family),
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
    const groups = frontends.change(change);
    const encodeMs = performance.now() - started;
    const committed = await tables.change(groups);
    listeners.retire(succeeded);
    return report(committed, encodeMs);
  }

  function report(committed: CommitReport, encodeMs: number): ApplyReport {
    const all = { ...committed, encodeMs: committed.encodeMs + encodeMs };
    return withFailures(all, [...frontends.failures, ...tables.refused], logger);
  }

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
      const state = frontends.get(frontend.key);
      return state ? locateSteps(state, packet, (pool) => listeners.get(pool)) : [];
    },

    listeners: () => [...listeners].map(shown),

    connections: () => listeners.active,

    abilities: {
      ...NO_ABILITIES,
      connections: {
        end: async (endpoints) => listeners.end(endpoints),
        drain: (signal) => listeners.drain(signal),
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
        frontends.clear();
        current = null;
        removed = true;
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

const shown = ({ pool, protocol, at, endpoints }: PoolListener) => ({ pool, protocol, at, endpoints });
