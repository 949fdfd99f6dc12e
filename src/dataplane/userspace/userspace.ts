import type { NetnsRef } from '../../kernel/netns.ts';
import { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { watchNftables } from '../../kernel/nftables/events.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import {
  type Change,
  type Endpoint,
  type Frontend,
  type FrontendKey,
  type ServiceMap,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import type { ApplyReport, Dataplane, SocketAddress } from '../dataplane.ts';
import type { Outcome } from '../failover/outcome.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { compareNfTable } from '../nf-table.ts';
import { hostPort } from './balancer.ts';
import {
  frontendElements,
  type ListenAddress,
  type ProgrammedFrontend,
  readListenerKey,
  type Target,
} from './elements.ts';
import { FamilyTable } from './family-table.ts';
import { LISTENERS, TABLE } from './layout.ts';
import { deleteListenerFlows } from './listener-flows.ts';
import { locateSteps } from './locate.ts';
import { createPoolListeners, type PoolListener, placeOf } from './pool-listeners.ts';
import { compareListeners } from './verify.ts';

export interface UserspaceOptions {
  readonly families: readonly IPFamily[];
  /** Where to listen and to program; default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** 0 to 1; where each pool's turns begin. */
  readonly random?: () => number;
  /** Called when somebody else has changed our tables: call `verify`, then `sync`. Cannot happen to owned tables. */
  readonly onForeignChange?: () => void;
  /** How connections to endpoints went: failures, and the first answer after one. */
  readonly onOutcome?: (outcome: Outcome) => void;
  /** The tables are this process's own, and survive it, where the kernel can (6.9). Default: true. */
  readonly owned?: boolean;
}

export interface UserspaceDataplane extends Dataplane {
  /** Where each pool is served. */
  listeners(): readonly {
    readonly pool: string;
    readonly protocol: 'TCP' | 'UDP';
    readonly at: ListenAddress;
    readonly endpoints: readonly Endpoint[];
  }[];
  /** Connections that are carried at this moment, and clients of UDP. */
  connections(): number;
  /** Ends what goes to endpoints that are gone: clients of TCP are reset. Returns how many. */
  endConnections(endpoints: readonly { readonly ip: string; readonly port: number }[]): number;
}

/** A listener that no rule leads to any more still takes connections that were on their way to it. */
const LINGER_MS = 1000;
/** A transaction is tried again this often when others commit in between. */
const ATTEMPTS = 8;

/**
 * The userspace mode: a listener for each pool of endpoints, at a random port of the node's address, to which a small
 * table of rules redirects what is sent to the pool's frontends. Which listener, or none, the rules decide by the class
 * of the source; which endpoint, this process, which tries the next when one fails. Servers see the node's address.
 */
export function createUserspace(options: UserspaceOptions): UserspaceDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const random = options.random ?? Math.random;
  const connection = new NftConnection(netns);
  const flowWatchers = new Set<OnFlowEvent>();
  const listeners = createPoolListeners({
    netns,
    clock,
    random,
    logger,
    onOutcome: options.onOutcome,
    onFlow: (event) => {
      for (const watcher of flowWatchers) watcher(event);
    },
  });
  const tables = new Map<IPFamily, FamilyTable>();
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
  let owned: boolean | null = options.owned === false ? false : null;
  let current: ServiceMap | null = null;
  let watch: { close(): void } | null = null;
  let removed = false;
  const calls = createMutex();

  function isOwned(): boolean {
    owned ??= connection.canOwnTables(NFPROTO[families[0] ?? 'ipv4']);
    return owned;
  }

  const hasTable = (family: IPFamily) =>
    connection.tables(NFPROTO[family]).some(({ name }) => name === TABLE);

  /** The listeners that a run before this one had. */
  function earlierListeners(): Map<string, ListenAddress> {
    const earlier = new Map<string, ListenAddress>();
    for (const family of families) {
      if (!hasTable(family)) continue;
      try {
        for (const { key, comment } of connection.elements(NFPROTO[family], TABLE, LISTENERS)) {
          earlier.set(comment ?? `${earlier.size}`, readListenerKey(key, family));
        }
      } catch (error) {
        // A table that somebody took the set from.
        if (!hasCode(error, 'ENOENT')) throw error;
      }
    }
    return earlier;
  }

  /** Takes the listeners that a frontend needs. Null, and noted as failed, when it cannot be written. */
  function program(frontend: Frontend): ProgrammedFrontend | null {
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
      frontendElements(state);
      return state;
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
    const earlier = tables.size === 0 ? earlierListeners() : new Map<string, ListenAddress>();
    removed = false;
    current = map;
    failures.clear();
    listeners.restart(map.node, earlier);
    const states = new Map<IPFamily, ProgrammedFrontend[]>(families.map((family) => [family, []]));
    for (const frontend of map.frontends.values()) {
      const list = states.get(frontend.family);
      const state = list && program(frontend);
      if (state) list.push(state);
    }
    unused.push(...listeners.sweep().unused);
    const tally = { encodeMs: performance.now() - started, kernelMs: 0, operations: 0 };
    const wasWatching = watch !== null;
    watch?.close();
    watch = null;
    try {
      for (const family of families) await syncFamily(family, map, states.get(family) ?? [], tally);
    } finally {
      if (wasWatching || onForeignChange) startWatch();
    }
    retire();
    return report(tally);
  }

  async function syncFamily(
    family: IPFamily,
    map: ServiceMap,
    frontends: readonly ProgrammedFrontend[],
    tally: Tally,
  ): Promise<void> {
    const protocol = NFPROTO[family];
    for (let attempt = 1; ; attempt++) {
      const started = performance.now();
      const generation = connection.generation();
      const replace = hasTable(family);
      const read = performance.now();
      const table = new FamilyTable(family, map.node);
      // Without a check on the last try: a machine whose rules others change all the time is no reason to give up.
      const batch = connection.batch(protocol, attempt < ATTEMPTS ? { generation } : {});
      const own = [...listeners].filter((listener) => listener.family === family);
      table.create(
        batch,
        { frontends, listeners: own.map(({ element }) => element), clusterIPs: map.clusterIPs.keys() },
        { owned: isOwned(), replace },
      );
      const encoded = performance.now();
      try {
        await connection.commit(batch);
      } catch (error) {
        if (attempt < ATTEMPTS && hasCode(error, 'ERESTART', 'errno 85')) continue;
        throw error;
      }
      tables.set(family, table);
      tally.operations += batch.operations;
      tally.encodeMs += encoded - read;
      tally.kernelMs += performance.now() - encoded + (read - started);
      return;
    }
  }

  async function apply(change: Change, map: ServiceMap): Promise<ApplyReport> {
    if (change.node || tables.size < families.length) return await sync(map);
    current = map;
    const started = performance.now();
    const states = change.frontends.flatMap(({ key, before, after }) => {
      const table = tables.get((after ?? before)?.family ?? 'ipv4');
      if (!table) return [];
      failures.delete(key);
      // What stays is taken before it is released.
      const state = after && program(after);
      for (const pool of table.frontends.get(key)?.pools ?? []) listeners.release(pool);
      return [{ key, family: table.family, after: state }];
    });
    const swept = listeners.sweep();
    unused.push(...swept.unused);
    const tally = { encodeMs: performance.now() - started, kernelMs: 0, operations: 0 };
    for (const family of families) {
      const table = tables.get(family);
      if (!table) continue;
      const begun = performance.now();
      const batch = connection.batch(NFPROTO[family]);
      const ofFamily = (list: readonly PoolListener[]) =>
        list.filter((listener) => listener.family === family).map(({ element }) => element);
      table.change(batch, {
        frontends: states.filter((state) => state.family === family),
        listeners: { added: ofFamily(swept.opened), removed: ofFamily(swept.unused) },
        clusterIPs: change.clusterIPs,
      });
      const encoded = performance.now();
      try {
        await connection.commit(batch);
      } catch (error) {
        // The kernel is not as it was left.
        logger.warn({ family, error: messageOf(error) }, 'writing the nf_tables table anew');
        return await sync(map);
      }
      tally.operations += batch.operations;
      tally.encodeMs += encoded - begun;
      tally.kernelMs += performance.now() - encoded;
    }
    retire();
    return report(tally);
  }

  /**
   * Closes the listeners that rules led to until now. When another mode has taken over, what is on its way through a UDP
   * listener still arrives.
   */
  function retire(): void {
    for (const [listener] of retired)
      if (listener.proxy.active === 0 && !listener.proxy.listening) retired.delete(listener);
    const gone: ListenAddress[] = [];
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

  /** Clients of UDP that go on sending are with the other mode before nobody listens here any more. */
  async function endLingering(listener: PoolListener): Promise<void> {
    const { proxy, protocol, at } = listener;
    if (protocol === 'TCP') proxy.closeListener();
    else {
      await forget([at]);
      proxy.close();
    }
    lingering.delete(lingeringName(listener));
    if (lingering.size === 0) lingered?.resolve();
  }

  function forget(gone: readonly ListenAddress[]): Promise<void> {
    forgetting = forgetting.then(async () => {
      try {
        await deleteListenerFlows(gone, netns);
      } catch (error) {
        logger.warn({ error: messageOf(error) }, 'flows to closed listeners could not be deleted');
      }
    });
    return forgetting;
  }

  function listening({ ip, port }: SocketAddress): boolean {
    const place = hostPort({ ip, port });
    return (listeners.udpAt(place) ?? lingering.get(place))?.proxy.listening ?? false;
  }

  function startWatch(): void {
    if (watch || isOwned() || !onForeignChange) return;
    const ours = new Set(families.map((family) => `${NFPROTO[family]} ${TABLE}`));
    watch = watchNftables(
      (transaction) => {
        if (connection.wrote(transaction.sequence)) return;
        if ([...transaction.tables].some((table) => ours.has(table))) onForeignChange();
      },
      onForeignChange,
      netns,
    );
  }

  function report(tally: Tally): ApplyReport {
    const failed = [...failures].map(([key, error]) => ({ key, error }));
    for (const { key, error } of failed) {
      logger.error({ frontend: key, error: messageOf(error) }, 'a frontend cannot be programmed');
    }
    return { ...tally, failed };
  }

  return {
    mode: 'userspace',
    families,
    sync: (map) => calls.run(() => sync(map)),
    apply: (change, map) => calls.run(() => apply(change, map)),

    verify: () =>
      calls.run(async () => {
        if (!current) return [];
        return [
          ...families.flatMap((family) =>
            compareNfTable(connection, family, TABLE, tables.get(family) ?? null),
          ),
          ...compareListeners(listeners, netns),
        ];
      }),

    locate(frontend, packet) {
      const state = tables.get(frontend.family)?.frontends.get(frontend.key);
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
      watch?.close();
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
      connection.close();
    },

    remove: (options = { succeeded: false }) =>
      calls.run(async () => {
        succeeded = options.succeeded;
        watch?.close();
        watch = null;
        const earlier = tables.size === 0 ? [...earlierListeners().values()] : [];
        for (const family of families) {
          if (!hasTable(family)) continue;
          await connection.removeTable(NFPROTO[family], TABLE);
        }
        tables.clear();
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
  listener.protocol === 'UDP' ? placeOf(listener) : `TCP ${placeOf(listener)}`;

interface Tally {
  encodeMs: number;
  kernelMs: number;
  operations: number;
}
