import type { NetnsRef } from '../../kernel/netns.ts';
import {
  keepLoopbackRoutes,
  type LoopbackRoutes,
  removeLoopbackRoutes,
} from '../../kernel/rtnetlink/loopback-routes.ts';
import { readSysctl, writeSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import { Tables } from '../../nft/tables.ts';
import type { Change, FrontendKey, ServiceMap } from '../../service/model.ts';
import type { ApplyReport, Dataplane } from '../dataplane.ts';
import { CLUSTER_IPS, changeAddressSet, HAIRPIN } from '../rules/address-elements.ts';
import { EndpointWords } from '../rules/endpoint-words.ts';
import { createLayout, type Layout } from './layout.ts';
import { locateSteps } from './locate.ts';
import { renderOrFail, renderTable, TABLE } from './render.ts';
import { type Forgotten, forgetClients, noteForgotten, restoredClients } from './restored-affinity.ts';

export interface NftablesOptions {
  readonly families: readonly IPFamily[];
  /** Where to program; default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** Called when another process has changed our tables: call `verify`, then `sync`. Cannot happen to owned tables. */
  readonly onForeignChange?: () => void;
  /** The tables are this process's own, and survive it, where the kernel can (6.9). Default: true. */
  readonly owned?: boolean;
  /**
   * Name of the tables; default "fairlead". Another mode that uses these tables for what it leaves out names its own,
   * so that both modes can be there at once while a node goes from one to the other.
   */
  readonly table?: string;
}

export interface NftablesDataplane extends Dataplane {
  /** Calls back when another process has changed our tables. */
  watchDrift(onDrift: () => void): { close(): void };
}

const ROUTE_LOCALNET = 'net.ipv4.conf.all.route_localnet';

/**
 * The nftables mode, over netlink: one table `fairlead` in `ip` and `ip6`, whose chains are shared by all Services;
 * a Service is elements of maps, so that what a change costs depends on the change alone.
 */
export function createNftables(options: NftablesOptions): NftablesDataplane {
  const { families, netns, logger = silentLogger } = options;
  const name = options.table ?? TABLE;
  const tables = new Tables({
    ...options,
    name,
    restore: (_set, remembered, family) =>
      restoredClients(family, current?.frontends.values() ?? [], remembered),
  });
  const layouts = new Map<IPFamily, Layout>();
  /** Frontends that cannot be written. */
  const failed = new Map<FrontendKey, Error>();
  let current: ServiceMap | null = null;
  let loopback: LoopbackRoutes | null = null;
  const calls = createMutex();

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    current = map;
    failed.clear();
    const committed = await tables.replace((family) => {
      const layout = createLayout(family, map.node);
      layouts.set(family, layout);
      return renderTable(name, layout, map, failed);
    });
    allowLoopback(map);
    return report(committed);
  }

  async function apply(change: Change, map: ServiceMap): Promise<ApplyReport> {
    if (change.node || !tables.areWritten) return await sync(map);
    current = map;
    const started = performance.now();
    const groups = new Map<IPFamily, ReadonlyMap<string, ElementGroup | null>>();
    const forgotten = new Map<IPFamily, Forgotten>();
    for (const [family, layout] of layouts) {
      const clients: Forgotten = new Map();
      groups.set(family, renderChange(change, layout, clients));
      if (clients.size > 0) forgotten.set(family, clients);
    }
    const rendered = performance.now();
    const committed = await tables.change(groups);
    const ended = performance.now();
    for (const [family, clients] of forgotten) {
      const table = tables.get(family);
      if (table) forgetClients(table, clients);
    }
    return report({
      ...committed,
      encodeMs: committed.encodeMs + rendered - started,
      kernelMs: committed.kernelMs + performance.now() - ended,
    });
  }

  function renderChange(
    change: Change,
    layout: Layout,
    forgotten: Forgotten,
  ): ReadonlyMap<string, ElementGroup | null> {
    const { family } = layout;
    const groups = new Map<string, ElementGroup | null>();
    const words = new EndpointWords(family, { whole: false });
    const { clusterIPs, hairpinAddresses } = change;
    for (const { key, before, after } of change.frontends) {
      if ((before ?? after)?.family !== family) continue;
      failed.delete(key);
      const next = after && renderOrFail(after, layout, words, failed);
      groups.set(key, next);
      if (before) noteForgotten(forgotten, before, next && after);
    }
    changeAddressSet(groups, CLUSTER_IPS, family, clusterIPs);
    changeAddressSet(groups, HAIRPIN, family, hairpinAddresses);
    return groups;
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

  function report(committed: CommitReport): ApplyReport {
    const all = [...failed, ...tables.refused].map(([key, error]) => ({ key, error }));
    for (const { key, error } of all) {
      logger.error({ frontend: key, error: messageOf(error) }, 'a frontend cannot be programmed');
    }
    return { ...committed, failed: all };
  }

  return {
    mode: 'nftables',
    families,
    sync: (map) => calls.run(() => sync(map)),
    apply: (change, map) => calls.run(() => apply(change, map)),
    verify: () => calls.run(async () => (current ? await tables.verify() : [])),
    watchDrift: (onDrift) => tables.watch(onDrift),

    locate(frontend, packet) {
      const layout = layouts.get(frontend.family);
      const isThere = tables.get(frontend.family)?.group(frontend.key) !== null;
      return layout && isThere ? locateSteps(frontend.family, name, layout.hasPods, frontend, packet) : [];
    },

    async close() {
      tables.close();
      loopback?.close();
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      calls.run(async () => {
        loopback?.close();
        loopback = null;
        current = null;
        layouts.clear();
        if (!succeeded && isGuarded() && readSysctl(ROUTE_LOCALNET, netns) === '1') {
          writeSysctl(ROUTE_LOCALNET, 0, netns);
        }
        await tables.remove();
        if (!succeeded && families.includes('ipv6')) removeLoopbackRoutes(netns);
      }),
  };

  /** The kernel has a table of ours that guards what route_localnet lets in. */
  function isGuarded(): boolean {
    return tables.get('ipv4')?.readChains().includes('guard-loopback') ?? false;
  }
}
