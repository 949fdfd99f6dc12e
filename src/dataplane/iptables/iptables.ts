import { setImmediate } from 'node:timers/promises';
import { readSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { recordOf } from '../../lib/record-of.ts';
import type { ServiceMap } from '../../service/model.ts';
import { type CountedPackets, NO_ABILITIES } from '../abilities.ts';
import type { ApplyReport, Dataplane, DataplaneOptions, Drift } from '../dataplane.ts';
import { createLoopbackAccess } from '../rules/loopback-access.ts';
import { COUNTED, HOOKS, type Hook } from './base-chains.ts';
import { isUniqueChain, TABLES, type Table } from './chain-names.ts';
import { createKeptChains } from './kept-chains.ts';
import { locateSteps } from './locate.ts';
import { createOwnSets } from './own-sets.ts';
import {
  command,
  type LiveTable,
  lineCount,
  NOTHING,
  type TableInput,
  type Tool,
  type Variant,
} from './restore.ts';
import { type Rule, sameRule, sameRules } from './rule.ts';
import { createRuleset, ownerKey, type Ruleset, type RulesetChange } from './ruleset.ts';
import type { AffinitySet } from './service-chains.ts';
import { createTableAccess } from './table-access.ts';
import type { TableInputs, Tables } from './tables.ts';

export interface IptablesOptions extends Omit<DataplaneOptions, 'owned' | 'clock'> {
  /** Default "auto": the variant of the machine's `iptables`. */
  readonly variant?: Variant;
  /** Whether kube-proxy runs on this node too: `remove` then keeps chains with its names. */
  readonly isKubeProxyRunning?: boolean;
}

/** Chains that `verify` compares in one turn of the event loop: some milliseconds. */
const TURN_CHAINS = 1000;
/** The maximum number of rejected service ports that are left out separately. */
const MAX_EXCLUDED = 16;

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

  /** Programs `map`; leaves out and reports service ports that iptables rejects. */
  async function program(map: ServiceMap): Promise<ApplyReport> {
    const excluded = new Map<string, Error>();
    kept.clear();
    for (;;) {
      const wanted = without(map, excluded);
      try {
        const report = await programAll(wanted);
        const chains = [...kept.errors].map(([chain, error]) => ({ key: `chain ${chain}`, error }));
        return { ...report, failed: [...failures(map, excluded), ...chains, ...report.failed] };
      } catch (error) {
        if (kept.keep(error)) continue;
        const owner = error instanceof FairleadError ? blame(error, rulesets.values()) : null;
        if (owner === null || excluded.has(owner) || excluded.size >= MAX_EXCLUDED) throw error;
        excluded.set(owner, error as Error);
        logger.error(
          { service: owner, error: messageOf(error) },
          'iptables rejects a service port: left out',
        );
      }
    }
  }

  async function programAll(map: ServiceMap): Promise<ApplyReport> {
    const started = performance.now();
    const affinity = sets.open();
    const dropInvalid = readSysctl('net.netfilter.nf_conntrack_tcp_be_liberal', netns) !== '1';
    let kernelMs = 0;
    let operations = 0;
    const rules: RuleCount[] = [];
    const before = sets.names();
    const perFamily = async ([family, tool]: [IPFamily, Tool]) => {
      const ruleset = createRuleset(map, family, { dropInvalid, affinity });
      rulesets.set(family, ruleset);
      const reading = performance.now();
      const tables = tablesOf(tool);
      const live = await tables.read();
      kernelMs += performance.now() - reading;
      const rendered = ruleset.render();
      const staged = (table: Table) => {
        const changed = difference(table, rendered[table], live[table]);
        rules.push({ family, table, written: count(changed.written), total: count(rendered[table]) });
        return divided(kept.emptying(changed, live[table]), (chain) => live[table].chains.has(chain));
      };
      const input: TableInputs = recordOf(TABLES, staged);
      const writing = performance.now();
      sets.create(missingSets(ruleset.sets, before));
      await tables.write(input);
      kernelMs += performance.now() - writing;
      operations += lineCount(input);
    };
    await Promise.all([...tools].map(perFamily));
    const wanted = new Set([...rulesets.values()].flatMap((ruleset) => [...ruleset.sets.keys()]));
    const failed = await sets.destroy(before.filter((name) => !wanted.has(name)));
    loopback.allow(map.node.localhostNodePorts);
    return {
      encodeMs: Math.max(0, performance.now() - started - kernelMs),
      kernelMs,
      operations,
      rules,
      failed,
    };
  }

  async function applyChanges(
    changes: readonly [Tool, RulesetChange][],
    started: number,
  ): Promise<ApplyReport> {
    // Only chains of new endpoints and Services are certainly not in use.
    const isLive = (chain: string) => !/^KUBE-S(EP|VC|VL)-/.test(chain);
    const inputs = changes.map(([tool, change]) => {
      const input: TableInputs = recordOf(TABLES, (table) =>
        divided({ ...NOTHING, written: change.written[table], deleted: change.deleted[table] }, isLive),
      );
      return { tool, change, input };
    });
    const encoded = performance.now();
    for (const { change } of inputs) sets.create(change.setsAdded);
    await Promise.all(inputs.map(({ tool, input }) => tablesOf(tool).write(input)));
    const failed = await sets.destroy(inputs.flatMap(({ change }) => change.setsRemoved));
    return {
      encodeMs: encoded - started,
      kernelMs: performance.now() - encoded,
      operations: inputs.reduce((sum, { input }) => sum + lineCount(input), 0),
      rules: changes.flatMap(([{ family }, { written }]) =>
        TABLES.map((table): RuleCount => ({ family, table, written: count(written[table]), total: null })),
      ),
      failed,
    };
  }

  /** Before the first programming the variant may be unknown. */
  const programmedTools = (): Tool[] =>
    [...tools].flatMap(([family, tool]) => (rulesets.has(family) ? [tool] : []));

  return {
    mode: 'iptables',
    families,
    sync(map) {
      return changing(() => program(map));
    },
    apply(change, map) {
      return changing(async () => {
        if (change.node || rulesets.size < families.length) return program(map);
        const started = performance.now();
        const changes = [...tools].flatMap(([family, tool]): [Tool, RulesetChange][] => {
          const ruleset = rulesets.get(family);
          return ruleset ? [[tool, ruleset.apply(change, map)]] : [];
        });
        try {
          return await applyChanges(changes, started);
        } catch (error) {
          // The kernel's state is unknown: compare with it.
          logger.warn({ error: messageOf(error) }, 'iptables rejected a change: programming all rules');
          return program(map);
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

/** Finds the service port that caused a failed restore, by the line that iptables names. */
function blame(error: FairleadError, rulesets: Iterable<Ruleset>): string | null {
  const line = error.object ?? '';
  const chain = /^(?:-A |:)(KUBE-\S+)/.exec(line)?.[1];
  for (const ruleset of rulesets) {
    const owner = chain === undefined ? null : ruleset.ownerOf(chain);
    if (owner) return owner;
  }
  const named = /-p (tcp|udp|sctp) .*--comment "([^ "]+\/[^ "]+)/.exec(line);
  return named ? `${named[2]}/${named[1]?.toUpperCase()}` : null;
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

type RuleCount = NonNullable<ApplyReport['rules']>[number];

const count = (chains: ReadonlyMap<string, readonly Rule[]>): number =>
  chains.values().reduce((sum, rules) => sum + rules.length, 0);

/** Returns the changes from `live` to `wanted`. */
function difference(table: Table, wanted: ReadonlyMap<string, readonly Rule[]>, live: LiveTable): TableInput {
  const written = new Map<string, readonly Rule[]>();
  for (const [chain, rules] of wanted) {
    const there = live.chains.get(chain);
    if (!sameRules(there, rules)) written.set(chain, rules);
  }
  return {
    written,
    deleted: [...live.chains.keys()].filter((chain) => !wanted.has(chain)),
    hooks: missingHooks(table, live),
    unhooked: foreignHooks(table, live),
  };
}

const missingHooks = (table: Table, live: LiveTable): Hook[] =>
  HOOKS.filter(
    (hook) =>
      hook.table === table && !live.builtin.get(hook.chain)?.some((line) => sameRule(line, hook.rule)),
  );

/** Rules of built-in chains that jump to our chains. */
const hooksIn = ({ builtin, chains }: LiveTable): { chain: string; rule: Rule }[] =>
  [...builtin].flatMap(([chain, rules]) =>
    rules.flatMap((rule) => (chains.has(/-[jg] (KUBE-\S+)/.exec(rule)?.[1] ?? '') ? [{ chain, rule }] : [])),
  );

/** Those that differ from ours: from an earlier version, or kube-proxy's. */
const foreignHooks = (table: Table, live: LiveTable): { chain: string; rule: Rule }[] =>
  hooksIn(live).filter(
    ({ chain, rule }) =>
      !HOOKS.some((hook) => hook.table === table && hook.chain === chain && sameRule(hook.rule, rule)),
  );

/** Keeps only chains with names that kube-proxy does not use. */
function keepUnique({ chains }: LiveTable): void {
  for (const name of [...chains.keys()]) if (!isUniqueChain(name)) chains.delete(name);
}

const removal = (live: LiveTable): TableInput => ({
  ...NOTHING,
  deleted: [...live.chains.keys()],
  unhooked: hooksIn(live),
});

/** Compares a family's tables with the kernel's, yielding to the event loop: there may be a million rules. */
async function driftsOf(
  tool: Tool,
  live: Record<Table, LiveTable>,
  ruleset: Ruleset,
  known: ReadonlyMap<string, Error>,
): Promise<Drift[]> {
  const object = (table: Table, chain: string) => `${command(tool, '')} -t ${table} chain ${chain}`;
  const drifts: Drift[] = [];
  const wanted: Record<Table, Set<string>> = { nat: new Set(), filter: new Set() };
  let compared = 0;
  for (const [table, chain, rules] of ruleset.chains()) {
    const there = live[table].chains.get(chain);
    wanted[table].add(chain);
    if (!there) drifts.push({ object: object(table, chain), kind: 'missing' });
    else if (!sameRules(there, rules)) drifts.push({ object: object(table, chain), kind: 'different' });
    if (++compared % TURN_CHAINS === 0) await setImmediate();
  }
  for (const table of TABLES) {
    for (const chain of live[table].chains.keys()) {
      if (wanted[table].has(chain) || known.has(chain)) continue;
      drifts.push({ object: object(table, chain), kind: 'unexpected' });
    }
    for (const { chain, rule } of missingHooks(table, live[table])) {
      drifts.push({ object: `${object(table, chain)} rule ${rule}`, kind: 'missing' });
    }
    for (const { chain, rule } of foreignHooks(table, live[table])) {
      drifts.push({ object: `${object(table, chain)} rule ${rule}`, kind: 'unexpected' });
    }
  }
  return drifts;
}

function missingSets(wanted: ReadonlyMap<string, AffinitySet>, present: readonly string[]): AffinitySet[] {
  const known = new Set(present);
  return [...wanted.values()].filter((set) => !known.has(set.name));
}

function without(map: ServiceMap, excluded: ReadonlyMap<string, Error>): ServiceMap {
  if (excluded.size === 0) return map;
  return {
    ...map,
    frontends: new Map([...map.frontends].filter(([, { owner }]) => !excluded.has(ownerKey(owner)))),
  };
}

function failures(map: ServiceMap, excluded: ReadonlyMap<string, Error>): ApplyReport['failed'] {
  if (excluded.size === 0) return [];
  return [...map.frontends.values()].flatMap(({ key, owner }) => {
    const error = excluded.get(ownerKey(owner));
    return error ? [{ key, error }] : [];
  });
}
