import { setImmediate } from 'node:timers/promises';
import type { Drift } from '../dataplane.ts';
import { HOOKS, type Hook } from './base-chains.ts';
import { isUniqueChain, TABLES, type Table } from './chain-names.ts';
import { command, type LiveTable, NOTHING, type TableInput, type Tool } from './restore.ts';
import { type Rule, sameRule, sameRules } from './rule.ts';
import type { Ruleset } from './ruleset.ts';

/** Chains that `driftsOf` compares in one turn of the event loop: some milliseconds. */
const TURN_CHAINS = 1000;

/** Returns the changes from `live` to `wanted`. */
export function difference(
  table: Table,
  wanted: ReadonlyMap<string, readonly Rule[]>,
  live: LiveTable,
): TableInput {
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

/** Returns the rules of built-in chains that jump to our chains. */
const hooksIn = ({ builtin, chains }: LiveTable): { chain: string; rule: Rule }[] =>
  [...builtin].flatMap(([chain, rules]) =>
    rules.flatMap((rule) => (chains.has(/-[jg] (KUBE-\S+)/.exec(rule)?.[1] ?? '') ? [{ chain, rule }] : [])),
  );

/** Returns hooks that differ from ours: of an earlier version, or kube-proxy's. */
const foreignHooks = (table: Table, live: LiveTable): { chain: string; rule: Rule }[] =>
  hooksIn(live).filter(
    ({ chain, rule }) =>
      !HOOKS.some((hook) => hook.table === table && hook.chain === chain && sameRule(hook.rule, rule)),
  );

/** Keeps only chains with names that kube-proxy does not use. */
export function keepUnique({ chains }: LiveTable): void {
  for (const name of [...chains.keys()]) if (!isUniqueChain(name)) chains.delete(name);
}

/** Returns the deletion of all our chains. */
export const removal = (live: LiveTable): TableInput => ({
  ...NOTHING,
  deleted: [...live.chains.keys()],
  unhooked: hooksIn(live),
});

/** Compares a family's tables with the kernel's, yielding to the event loop: there may be a million rules. */
export async function driftsOf(
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
