import type { NetnsRef } from '../../kernel/netns.ts';
import { readSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { recordOf } from '../../lib/record-of.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { ApplyReport } from '../dataplane.ts';
import type { LoopbackAccess } from '../rules/loopback-access.ts';
import { TABLES, type Table } from './chain-names.ts';
import { difference } from './comparison.ts';
import type { KeptChains } from './kept-chains.ts';
import type { OwnSets } from './own-sets.ts';
import { lineCount, NOTHING, type Tool } from './restore.ts';
import type { Rule } from './rule.ts';
import { createRuleset, ownerKey, type Ruleset, type RulesetChange } from './ruleset.ts';
import type { AffinitySet } from './service-chains.ts';
import type { TableAccess } from './table-access.ts';
import type { TableInputs } from './tables.ts';

/** The parts of the mode on a node. */
export interface IptablesNode {
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
  readonly access: TableAccess;
  /** The rules that are programmed. */
  readonly rulesets: Map<IPFamily, Ruleset>;
  readonly kept: KeptChains;
  readonly sets: OwnSets;
  readonly loopback: LoopbackAccess;
}

/** The maximum number of rejected service ports that are left out separately. */
const MAX_EXCLUDED = 16;

/** Programs `map`; leaves out and reports service ports that iptables rejects. */
export async function program(node: IptablesNode, map: ServiceMap): Promise<ApplyReport> {
  const { kept, rulesets, logger } = node;
  const excluded = new Map<string, Error>();
  kept.clear();
  for (;;) {
    const wanted = without(map, excluded);
    try {
      const report = await programAll(node, wanted);
      const chains = [...kept.errors].map(([chain, error]) => ({ key: `chain ${chain}`, error }));
      return { ...report, failed: [...failures(map, excluded), ...chains, ...report.failed] };
    } catch (error) {
      if (kept.keep(error)) continue;
      const owner = error instanceof FairleadError ? blame(error, rulesets.values()) : null;
      if (owner === null || excluded.has(owner) || excluded.size >= MAX_EXCLUDED) throw error;
      excluded.set(owner, error as Error);
      logger.error({ service: owner, error: messageOf(error) }, 'iptables rejects a service port: left out');
    }
  }
}

async function programAll(node: IptablesNode, map: ServiceMap): Promise<ApplyReport> {
  const { access, kept, sets, rulesets, loopback, netns } = node;
  const { tools, tablesOf, divided } = access;
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

/** Writes what changed in the rulesets of some families. */
export async function applyChanges(
  { access, sets }: IptablesNode,
  changes: readonly [Tool, RulesetChange][],
  started: number,
): Promise<ApplyReport> {
  const { tablesOf, divided } = access;
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

type RuleCount = NonNullable<ApplyReport['rules']>[number];

const count = (chains: ReadonlyMap<string, readonly Rule[]>): number =>
  chains.values().reduce((sum, rules) => sum + rules.length, 0);

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
