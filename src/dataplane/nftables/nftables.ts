import type { IPFamily } from '../../lib/address.ts';
import { silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import { Tables } from '../../nft/tables.ts';
import type { Change, FrontendKey, ServiceMap } from '../../service/model.ts';
import { NO_ABILITIES } from '../abilities.ts';
import { type ApplyReport, type Dataplane, type DataplaneOptions, withFailures } from '../dataplane.ts';
import { CLUSTER_IPS, changeAddressSet, HAIRPIN } from '../rules/address-elements.ts';
import { EndpointWords } from '../rules/endpoint-words.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { createLayout, type Layout } from './layout.ts';
import { locateSteps } from './locate.ts';
import { renderOrFail, renderTable, TABLE } from './render.ts';
import { type Forgotten, forgetClients, noteForgotten, restoredClients } from './restored-affinity.ts';

export interface NftablesOptions extends DataplaneOptions {
  /**
   * Name of the tables; default "fairlead". A mode that uses these tables for part of the traffic has a
   * separate name, so that both modes can exist at once while a node switches.
   */
  readonly table?: string;
}

/**
 * Opens the nftables mode, over netlink: one table `fairlead` in `ip` and `ip6`, whose chains are shared by all Services;
 * a Service consists of map elements, so that the cost of a change depends only on its size.
 */
export function createNftables(options: NftablesOptions): Dataplane {
  const { families, netns, logger = silentLogger } = options;
  const name = options.table ?? TABLE;
  const tables = new Tables({
    ...options,
    name,
    restore: (_set, remembered, family) =>
      restoredClients(family, current?.frontends.values() ?? [], remembered),
  });
  const layouts = new Map<IPFamily, Layout>();
  /** Frontends that could not be written. */
  const failed = new Map<FrontendKey, Error>();
  let current: ServiceMap | null = null;
  const loopback = createLoopbackAccess(families, netns);
  const calls = createMutex();

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    current = map;
    failed.clear();
    const committed = await tables.replace((family) => {
      const layout = createLayout(family, map.node);
      layouts.set(family, layout);
      return renderTable(name, layout, map, failed);
    });
    loopback.allow(map.node.localhostNodePorts);
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
    let words: EndpointWords | null = null;
    const { clusterIPs, hairpinAddresses } = change;
    for (const { key, before, after } of change.frontends) {
      if ((before ?? after)?.family !== family) continue;
      failed.delete(key);
      if (after) words ??= new EndpointWords(family, { whole: false });
      const next = after && words && renderOrFail(after, layout, words, failed);
      groups.set(key, next);
      if (before) noteForgotten(forgotten, before, next && after);
    }
    changeAddressSet(groups, CLUSTER_IPS, family, clusterIPs);
    changeAddressSet(groups, HAIRPIN, family, hairpinAddresses);
    return groups;
  }

  const report = (committed: CommitReport): ApplyReport =>
    withFailures(committed, [...failed, ...tables.refused], logger);

  return {
    mode: 'nftables',
    families,
    abilities: NO_ABILITIES,
    sync: (map) => calls.run(() => sync(map)),
    apply: (change, map) => calls.run(() => apply(change, map)),
    verify: () => calls.run(async () => (current ? await tables.verify() : [])),

    locate(frontend, packet) {
      const layout = layouts.get(frontend.family);
      const isThere = tables.get(frontend.family)?.group(frontend.key) !== null;
      return layout && isThere ? locateSteps(frontend.family, name, layout.hasPods, frontend, packet) : [];
    },

    async close() {
      tables.close();
      loopback.close();
    },

    remove: ({ succeeded } = { succeeded: false }) =>
      calls.run(async () => {
        current = null;
        layouts.clear();
        loopback.remove({ succeeded });
        await tables.remove();
      }),
  };
}
