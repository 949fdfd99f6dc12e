import { setImmediate } from 'node:timers/promises';
import type { ReservedMemory } from '../../kernel/mapped-memory.ts';
import { openXtables } from '../../kernel/xtables/connection.ts';
import { LAYOUT } from '../../kernel/xtables/layout.ts';
import { withXtablesLock } from '../../kernel/xtables/lock.ts';
import { type BuiltTable, buildTable, type TableChange } from '../../kernel/xtables/replacement.ts';
import { createRuleDecoder, type RuleDecoder } from '../../kernel/xtables/rule-decoder.ts';
import { createRuleEncoder } from '../../kernel/xtables/rule-encoder.ts';
import { openSetIndex } from '../../kernel/xtables/set-index.ts';
import { chainNames, type ParsedTable, parseTable, rulesOf } from '../../kernel/xtables/table.ts';
import { UnknownRule } from '../../kernel/xtables/words.ts';
import type { IPFamily } from '../../lib/address.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { isOwnChain, TABLES, type Table } from './chain-names.ts';
import {
  type CountedRule,
  type LiveTable,
  readTable,
  restore,
  restoreInput,
  type TableInput,
  type Tool,
} from './restore.ts';
import type { Rule } from './rule.ts';
import { type TableInputs, type Tables, toolTables } from './tables.ts';

/** As `iptables-restore --wait 5`. */
const LOCK_MS = 5000;
/** Attempts to replace a table that other programs change without the lock. */
const ATTEMPTS = 10;
/** Chains that are read in one turn of the event loop: some milliseconds. */
const TURN_CHAINS = 1000;

export interface KernelTablesOptions {
  /** Called with the reason when iptables-save or iptables-restore is used instead. */
  readonly onToolUsed: (reason: string) => void;
  /** Called if the counters of other rules start at zero after a change. */
  readonly onLostCounters: (reason: string) => void;
}

/**
 * Opens the tables of iptables-legacy by the kernel's interface, which takes a fraction of the program's time. What this code
 * cannot read or write, and what the kernel refuses, is left to the program, which names the line that is wrong.
 */
export function openKernelTables(tool: Tool, { onToolUsed, onLostCounters }: KernelTablesOptions): Tables {
  const { family, netns } = tool;
  const connection = openXtables(family, netns);
  const sets = openSetIndex(netns);
  const decoder = createRuleDecoder(family, sets);
  const encoder = createRuleEncoder({
    family,
    sets,
    isSupported: (kind, { name, revision }) => connection.hasRevision(kind, name, revision),
  });

  async function read(table: Table): Promise<LiveTable> {
    try {
      using raw = await connection.read(table);
      return await readLive(parseTable(raw, family), family, decoder);
    } catch (error) {
      onToolUsed(`reading ${family} ${table}: ${reasonOf(error)}`);
      return readTable(tool, table);
    }
  }

  /** Restores the counters of unchanged rules. */
  async function restoreCounters(table: Table, built: BuiltTable, old: ReservedMemory): Promise<void> {
    using counters = built.movedCounters(old);
    if (!counters) return;
    try {
      await connection.addCounters(table, counters, built.count);
    } catch (error) {
      // A program without the lock has replaced the table again; the rules are in place.
      onLostCounters(messageOf(error));
    }
  }

  /** Replaces a table. Returns the reason if this code or the kernel cannot. */
  async function replace(table: Table, change: TableChange): Promise<string | null> {
    for (let attempt = 1; ; attempt++) {
      using raw = await connection.read(table);
      using built = buildTable(parseTable(raw, family), change, family, encoder, decoder);
      const counters = await connection.replace(raw, built);
      if (typeof counters !== 'string') {
        using old = counters;
        await restoreCounters(table, built, old);
        return null;
      }
      // A program without the lock has changed the table since it was read.
      if (counters !== 'EAGAIN' || attempt === ATTEMPTS) return `the kernel refuses the table: ${counters}`;
    }
  }

  async function write(table: Table, input: TableInput): Promise<void> {
    const { written, deleted, hooks, unhooked } = input;
    if (written.size + deleted.length + hooks.length + unhooked.length === 0) return;
    let reason: string | null;
    try {
      const change = { written, deleted, inserted: hooks, removed: unhooked };
      reason = await withXtablesLock(LOCK_MS, () => replace(table, change));
    } catch (error) {
      // The program would wait for the lock as long, and again.
      if (error instanceof FairleadError && error.op === 'lock iptables') throw error;
      reason = reasonOf(error);
    }
    if (reason === null) return;
    onToolUsed(`writing ${family} ${table}: ${reason}`);
    const nothing: readonly TableInput[] = [];
    await restore(tool, restoreInput({ nat: nothing, filter: nothing, [table]: [input] }));
  }

  return {
    async read() {
      const [nat, filter] = await Promise.all([read('nat'), read('filter')]);
      return { nat, filter };
    },
    async write(inputs: TableInputs) {
      for (const table of TABLES) for (const input of inputs[table]) await write(table, input);
    },
    async packets(counted) {
      try {
        return await withXtablesLock(LOCK_MS, async () => {
          using raw = await connection.read('filter');
          return packetsOf(parseTable(raw, family), family, decoder, counted);
        });
      } catch (error) {
        if (error instanceof FairleadError && error.op === 'lock iptables') throw error;
        onToolUsed(`reading ${family} counters: ${reasonOf(error)}`);
        return toolTables(tool).packets(counted);
      }
    },
    close() {
      connection.close();
      sets.close();
    },
  };
}

/** Returns why iptables-save or iptables-restore is needed. Throws errors with which these would fail too. */
function reasonOf(error: unknown): string {
  if (error instanceof UnknownRule || error instanceof FairleadError) return messageOf(error);
  throw error;
}

/**
 * Reads this mode's chains and the rules of the built-in chains. Throws UnknownRule for a rule of this mode, or one that jumps
 * to it, that is not of the kind that this mode writes.
 */
async function readLive(parsed: ParsedTable, family: IPFamily, decoder: RuleDecoder): Promise<LiveTable> {
  const { bytes } = parsed;
  const chainAt = chainNames(parsed);
  const live: LiveTable = { chains: new Map(), builtin: new Map() };
  let read = 0;
  for (const chain of parsed.chains) {
    const isOwn = chain.hook === null && isOwnChain(chain.name);
    if (chain.hook === null && !isOwn) continue;
    const rules: Rule[] = [];
    for (const at of rulesOf(chain, bytes, family)) {
      const rule = decoder.read(bytes, at, chainAt);
      if (rule === null && (isOwn || isOwnChain(chainAt(decoder.jumpOf(bytes, at) ?? -1) ?? '')))
        throw new UnknownRule(`a rule of ${chain.name}`);
      rules.push(rule ?? FOREIGN);
    }
    (isOwn ? live.chains : live.builtin).set(chain.name, rules);
    if (++read % TURN_CHAINS === 0) await setImmediate();
  }
  return live;
}

/** Reads the counters of rules. They are zero for a moment when a program replaces the table: it must have the lock. */
function packetsOf(
  parsed: ParsedTable,
  family: IPFamily,
  decoder: RuleDecoder,
  counted: readonly CountedRule[],
): number[] {
  const { bytes } = parsed;
  const chainAt = chainNames(parsed);
  return counted.map(({ chain: name, options }) => {
    const chain = parsed.chains.find((one) => one.name === name);
    for (const at of chain ? rulesOf(chain, bytes, family) : []) {
      if (!decoder.read(bytes, at, chainAt)?.includes(` ${options} `)) continue;
      return Number(bytes.readBigUInt64LE(at + LAYOUT[family].counters));
    }
    return 0;
  });
}

/** A rule of a built-in chain that this mode did not write and need not understand. */
const FOREIGN: Rule = '(foreign)';
