import { setImmediate } from 'node:timers/promises';
import type { Outcome } from '../../failover/outcome.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { systemClock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import { Tables } from '../../nft/tables.ts';
import {
  type Change,
  type Endpoint,
  type Frontend,
  type FrontendKey,
  type ServiceMap,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import { type ApplyReport, type Dataplane, type DataplaneOptions, withFailures } from '../dataplane.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { CLUSTER_IPS, changeAddressSet } from '../rules/address-elements.ts';
import { LISTENERS, TABLE } from './layout.ts';
import { deleteListenerFlows } from './listener-flows.ts';
import { locateSteps } from './locate.ts';
import { createPoolListeners, type PoolListener, type UserspaceAdmission } from './pool-listeners.ts';
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
  /** 0 to 1; where each pool's turns begin. */
  readonly random?: () => number;
  /** Whether network policies let a client connect to an endpoint: servers see the node, so nothing else can tell. */
  readonly admits?: UserspaceAdmission;
  /** How connections to endpoints went: failures, and the first answer after one. */
  readonly onOutcome?: (outcome: Outcome) => void;
}

export interface UserspaceDataplane extends Dataplane {
  /** Where each pool is served. */
  listeners(): readonly {
    readonly pool: string;
    readonly protocol: 'TCP' | 'UDP';
    readonly at: SocketAddress;
    readonly endpoints: readonly Endpoint[];
  }[];
  /** Connections that are carried at this moment, and clients of UDP. */
  connections(): number;
  /** Ends what goes to endpoints that are gone: clients of TCP are reset. Returns how many. */
  endConnections(endpoints: readonly { readonly ip: string; readonly port: number }[]): number;
}

/** A listener that no rule leads to any more still takes connections that were on their way to it. */
const LINGER_MS = 1000;
/** A frontend that the tables hold. */
interface Programmed extends ProgrammedFrontend {
  readonly group: ElementGroup;
}

/**
 * The userspace mode: a listener for each pool of endpoints, at a random port of the node's address, to which a small
 * table of rules redirects what is sent to the pool's frontends. Which listener, or none, the rules decide by the class
 * of the source; which endpoint, this process, which tries the next when one fails. Servers see the node's address.
 */
export function createUserspace(options: UserspaceOptions): UserspaceDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock } = options;
  const random = options.random ?? Math.random;
  const tables = new Tables({ ...options, name: TABLE });
  const flowWatchers = new Set<OnFlowEvent>();
  const listeners = createPoolListeners({
    netns,
    clock,
    random,
    logger,
    admits: options.admits,
    onOutcome: options.onOutcome,
    onFlow: (event) => {
      for (const watcher of flowWatchers) watcher(event);
    },
  });
  const programmed = new Map<FrontendKey, Programmed>();
  const failures = new Map<FrontendKey, Error>();
  /** Listeners that no rule leads to any more: first those that still listen, then those with connections. */
  const retired = new Map<PoolListener, () => void>();
  /** Those of `retired` that still take what comes. */
  const lingering = new Map<string, PoolListener>();
  let lingered: PromiseWithResolvers<void> | null = null;
  /** The flows of closed listeners, while they are being deleted. */
  let forgetting: Promise<void> = Promise.resolve();
  let succeeded = false;
  let unused: PoolListener[] = [];
  let current: ServiceMap | null = null;
  let removed = false;
  const calls = createMutex();

  /** The listeners of an earlier process. */
  function earlierListeners(): Map<string, SocketAddress> {
    const earlier = new Map<string, SocketAddress>();
    for (const table of tables) {
      for (const { key, comment } of table.read(LISTENERS)) {
        earlier.set(comment ?? `${earlier.size}`, readListenerKey(key, table.family));
      }
    }
    return earlier;
  }

  /** Takes the listeners that a frontend needs. Null, and noted as failed, when it cannot be written. */
  function program(frontend: Frontend): Programmed | null {
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
        fail(frontend.key, error);
        return 'reject';
      }
    };
    const targets = Object.fromEntries(SOURCE_CLASSES.map((source) => [source, target(source)]));
    const state = { frontend, targets: targets as Record<SourceClass, Target>, pools: [...pools] };
    try {
      return { ...state, group: renderFrontend(state) };
    } catch (error) {
      fail(frontend.key, error);
      for (const pool of pools) listeners.release(pool);
      return null;
    }
  }

  function fail(key: FrontendKey, error: unknown): void {
    failures.set(key, error instanceof Error ? error : new Error(String(error)));
  }

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    const started = performance.now();
    const earlier = tables.areWritten ? new Map<string, SocketAddress>() : earlierListeners();
    removed = false;
    current = map;
    failures.clear();
    programmed.clear();
    listeners.restart(map.node, earlier);
    for (const frontend of map.frontends.values()) {
      const state = families.includes(frontend.family) ? program(frontend) : null;
      if (state) programmed.set(frontend.key, state);
    }
    unused.push(...listeners.sweep().unused);
    const encodeMs = performance.now() - started;
    const committed = await tables.replace((family) =>
      renderTable(family, map.node, {
        frontends: [...programmed].flatMap(([key, { frontend, group }]) =>
          frontend.family === family ? [{ key, group }] : [],
        ),
        listeners,
        clusterIPs: map.clusterIPs.keys(),
      }),
    );
    retire();
    return report({ ...committed, encodeMs: committed.encodeMs + encodeMs });
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
      // What stays is taken before it is released.
      const state = after && program(after);
      for (const pool of programmed.get(key)?.pools ?? []) listeners.release(pool);
      if (state) programmed.set(key, state);
      else programmed.delete(key);
      ofFamily.set(key, state?.group ?? null);
    }
    const swept = listeners.sweep();
    unused.push(...swept.unused);
    for (const listener of swept.unused) groups.get(listener.family)?.set(listenerOwner(listener), null);
    for (const listener of swept.opened) {
      groups.get(listener.family)?.set(listenerOwner(listener), renderListener(listener));
    }
    for (const [family, ofFamily] of groups) {
      changeAddressSet(ofFamily, CLUSTER_IPS, family, change.clusterIPs);
    }
    const encodeMs = performance.now() - started;
    const committed = await tables.change(groups);
    retire();
    return report({ ...committed, encodeMs: committed.encodeMs + encodeMs });
  }

  /**
   * Closes the listeners that rules led to until now. When another mode has taken over, what is on its way through a UDP
   * listener still arrives.
   */
  function retire(): void {
    for (const [listener] of retired)
      if (listener.proxy.active === 0 && !listener.proxy.listening) retired.delete(listener);
    const gone: SocketAddress[] = [];
    for (const listener of unused) {
      const { proxy, protocol, at } = listener;
      if (protocol === 'UDP' && !succeeded) {
        proxy.close();
        gone.push(at);
        continue;
      }
      const cancel = clock.after(LINGER_MS, () => void endLingering(listener));
      lingering.set(lingeringName(listener), listener);
      retired.set(listener, cancel);
    }
    unused = [];
    forget(gone);
  }

  /** Clients of UDP that go on sending reach the other mode before the listener closes. */
  async function endLingering(listener: PoolListener): Promise<void> {
    const { proxy, protocol, at } = listener;
    // Where this process waited for a processor, the timer is served before the connections that came meanwhile: they
    // are accepted first, since closing the listener resets what it has not accepted.
    await setImmediate();
    if (protocol === 'TCP') proxy.closeListener();
    else {
      await forget([at]);
      proxy.close();
    }
    lingering.delete(lingeringName(listener));
    if (lingering.size === 0) lingered?.resolve();
  }

  function forget(gone: readonly SocketAddress[]): Promise<void> {
    forgetting = forgetting.then(async () => {
      try {
        await deleteListenerFlows(gone, netns);
      } catch (error) {
        logger.warn({ error: messageOf(error) }, 'flows to closed listeners could not be deleted');
      }
    });
    return forgetting;
  }

  function listening(at: SocketAddress): boolean {
    const place = hostPort(at);
    return (listeners.udpAt(place) ?? lingering.get(place))?.proxy.listening ?? false;
  }

  const report = (committed: CommitReport): ApplyReport =>
    withFailures(committed, [...failures, ...tables.refused], logger);

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

    listeners: () =>
      [...listeners].map(({ pool, protocol, at, endpoints }) => ({ pool, protocol, at, endpoints })),

    connections: () => [...listeners, ...retired.keys()].reduce((sum, { proxy }) => sum + proxy.active, 0),

    endConnections(endpoints) {
      let ended = 0;
      for (const { proxy } of [...listeners, ...retired.keys()]) {
        for (const endpoint of endpoints) ended += proxy.end(hostPort(endpoint));
      }
      return ended;
    },

    listening,

    watchFlows(onEvent) {
      // As a function of its own: the same may watch twice.
      const watcher: OnFlowEvent = (event) => onEvent(event);
      flowWatchers.add(watcher);
      return { close: () => void flowWatchers.delete(watcher) };
    },

    async close() {
      tables.unwatch();
      if (succeeded && lingering.size > 0) {
        // Closed with connections that wait to be accepted, a listener would reset these.
        lingered = Promise.withResolvers();
        await lingered.promise;
      }
      for (const [listener, cancel] of retired) {
        cancel();
        // After `remove` another mode carries new connections, and those that are established end when they end.
        if (removed) listener.proxy.closeListener();
        else listener.proxy.close();
      }
      for (const { proxy } of [...listeners, ...unused]) proxy.close();
      await forgetting;
      tables.close();
    },

    remove: (options = { succeeded: false }) =>
      calls.run(async () => {
        succeeded = options.succeeded;
        const earlier = tables.areWritten ? [] : [...earlierListeners().values()];
        await tables.remove();
        programmed.clear();
        current = null;
        removed = true;
        failures.clear();
        listeners.releaseAll();
        unused.push(...listeners.sweep().unused);
        retire();
        await forget(earlier);
      }),
  };
}

/** UDP's are found by their place alone: connection tracking is compared for these only. */
const lingeringName = (listener: PoolListener): string =>
  listener.protocol === 'UDP' ? hostPort(listener.at) : `TCP ${hostPort(listener.at)}`;
