import type { IPFamily } from '../../lib/address.ts';
import { messageOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { recordOf } from '../../lib/record-of.ts';
import { type CountedPackets, NO_ABILITIES } from '../abilities.ts';
import type { Dataplane, DataplaneOptions, Drift } from '../dataplane.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { COUNTED } from './base-chains.ts';
import { TABLES, type Table } from './chain-names.ts';
import { driftsOf, keepUnique, removal } from './comparison.ts';
import { createKeptChains } from './kept-chains.ts';
import { locateSteps } from './locate.ts';
import { createOwnSets } from './own-sets.ts';
import { applyChanges, type IptablesNode, program } from './programming.ts';
import type { Tool, Variant } from './restore.ts';
import type { Ruleset, RulesetChange } from './ruleset.ts';
import { createTableAccess } from './table-access.ts';
import type { Tables } from './tables.ts';

export interface IptablesOptions extends Omit<DataplaneOptions, 'owned' | 'clock'> {
  /** Default "auto": the variant of the machine's `iptables`. */
  readonly variant?: Variant;
  /** Whether kube-proxy runs on this node too: `remove` then keeps chains with its names. */
  readonly isKubeProxyRunning?: boolean;
}

/** Creates the iptables mode: chains with kube-proxy's names, found through a tree of chains instead of a list. */
export function createIptables(options: IptablesOptions): Dataplane {
  const { families, netns, onForeignChange, isKubeProxyRunning = false } = options;
  const { variant = 'auto', logger = silentLogger } = options;
  const access = createTableAccess({ families, variant, netns, logger, onForeignChange });
  const { tools, tablesOf, divided, changing } = access;
  const rulesets = new Map<IPFamily, Ruleset>();
  const kept = createKeptChains(logger);
  const sets = createOwnSets(netns, logger);
  const loopback = createLoopbackAccess(families, netns);
  const node: IptablesNode = { netns, logger, access, rulesets, kept, sets, loopback };

  /** Before the first programming the variant may be unknown. */
  const programmedTools = (): Tool[] =>
    [...tools].flatMap(([family, tool]) => (rulesets.has(family) ? [tool] : []));

  return {
    mode: 'iptables',
    families,
    sync(map) {
      return changing(() => program(node, map));
    },
    apply(change, map) {
      return changing(async () => {
        if (change.node || rulesets.size < families.length) return program(node, map);
        const started = performance.now();
        const changes = [...tools].flatMap(([family, tool]): [Tool, RulesetChange][] => {
          const ruleset = rulesets.get(family);
          return ruleset ? [[tool, ruleset.apply(change, map)]] : [];
        });
        try {
          return await applyChanges(node, changes, started);
        } catch (error) {
          // The kernel's state is unknown: compare with it.
          logger.warn({ error: messageOf(error) }, 'iptables rejected a change: programming all rules');
          return program(node, map);
        }
      });
    },
    async verify() {
      let drifts: Drift[] = [];
      for (const [family, tool] of tools) {
        const ruleset = rulesets.get(family);
        if (!ruleset) continue;
        drifts = drifts.concat(await driftsOf(tool, await tablesOf(tool).read(), ruleset, kept.errors));
      }
      const present = new Set(sets.names());
      for (const ruleset of rulesets.values()) {
        for (const name of ruleset.sets.keys()) {
          if (!present.has(name)) drifts.push({ object: `ipset ${name}`, kind: 'missing' });
        }
      }
      return drifts;
    },
    locate(frontend, packet) {
      const ruleset = rulesets.get(frontend.family);
      return ruleset ? locateSteps(frontend, packet, ruleset) : [];
    },
    abilities: {
      ...NO_ABILITIES,
      counters: { read: async () => await countPackets(programmedTools().map(tablesOf)) },
    },
    async close() {
      access.close();
      loopback.close();
      sets.close();
    },
    remove({ succeeded } = { succeeded: false }) {
      return changing(async () => {
        kept.clear();
        for (const tool of tools.values()) {
          for (;;) {
            const tables = tablesOf(tool);
            const live = await tables.read();
            if (isKubeProxyRunning) for (const table of TABLES) keepUnique(live[table]);
            const staged = (table: Table) =>
              divided(kept.emptying(removal(live[table]), live[table]), () => true);
            try {
              await tables.write(recordOf(TABLES, staged));
              break;
            } catch (error) {
              if (!kept.keep(error)) throw error;
            }
          }
        }
        if (sets.open()) await sets.destroy(sets.names());
        loopback.remove({ succeeded });
        rulesets.clear();
      });
    },
  };
}

async function countPackets(families: readonly Tables[]): Promise<CountedPackets> {
  const counts = await Promise.all(
    families.map((tables) => tables.packets([COUNTED.invalidDropped, COUNTED.loopbackAccepted])),
  );
  const total = { invalidDropped: 0, loopbackAccepted: 0 };
  for (const [invalidDropped = 0, loopbackAccepted = 0] of counts) {
    total.invalidDropped += invalidDropped;
    total.loopbackAccepted += loopbackAccepted;
  }
  return total;
}
