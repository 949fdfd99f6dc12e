import { messageOf } from '../../lib/errors.ts';
import type { RouteRow } from '../route-map.ts';
import { pathGroups, slashed } from './path-groups.ts';
import { mapKey, word } from './quote.ts';
import type { RefusedRow } from './rendering.ts';
import { rowConditions } from './row-conditions.ts';
import type { SectionTable, Target } from './section-table.ts';

/** The rows of a host as keys of the common maps, and as rules of the frontends that have the host. */
export interface PathTable {
  /** The beginning of its keys. */
  readonly id: string;
  readonly rules: readonly string[];
}

/** Renders tables; those that several frontends use are rendered once. */
export interface PathTables {
  table(rows: readonly RouteRow[]): PathTable;
  /** Lines of the maps of whole paths, and of prefixes. */
  readonly exact: readonly string[];
  readonly prefix: readonly string[];
  readonly refused: readonly RefusedRow[];
}

/** HAProxy reads 64 words of a line; a condition has at most six. */
const MAX_CONDITIONS = 8;

/**
 * The variable txn.row is the name of a section, of the hard rows of a table, or of several backends, among which rules of the
 * frontend choose: each replaces it, so that the following ones do not apply.
 */
const chosen = (name: string, from: string, conditions: readonly string[], unique = 0): string[] => {
  const rules: string[] = [];
  let before: readonly string[] = [];
  let left = conditions;
  while (left.length > MAX_CONDITIONS) {
    // Of more, those that are fulfilled are remembered by a name that no other rule uses.
    const part = `${from}.${unique}.${left.length}`;
    rules.push(rule('txn.part', part, from, [...before, ...left.slice(0, MAX_CONDITIONS)]));
    before = [`{ var(txn.part) -m str ${part} }`];
    left = left.slice(MAX_CONDITIONS);
  }
  return [...rules, rule('txn.row', name, from, [...before, ...left])];
};

const rule = (variable: string, value: string, from: string, conditions: readonly string[]): string =>
  [
    `http-request set-var(${variable})`,
    `str(${value}) if`,
    `{ var(txn.row) -m str ${from} }`,
    ...conditions,
  ].join(' ');

export function createPathTables(sections: SectionTable): PathTables {
  const tables = new Map<readonly RouteRow[], PathTable>();
  const exact: string[] = [];
  const prefix: string[] = [];
  const refused: RefusedRow[] = [];

  const render = (id: string, rows: readonly RouteRow[]): PathTable => {
    const rules: string[] = [];
    const weighted = new Map<string, readonly string[]>();
    const undecided = `g${id}`;
    const nameOf = (target: Target): string => {
      if (target.kind === 'weighted') weighted.set(target.name, weightRules(target));
      return target.name;
    };
    const put = (lines: string[], path: string, target: RouteRow | null) => {
      const key = mapKey(id + path);
      if (key !== null) lines.push(`${key} ${target ? nameOf(sections.target(target)) : undecided}`);
    };
    const found = pathGroups(rows);
    for (const [path, target] of found.exact) put(exact, path, target);
    for (const [path, target] of found.prefix) put(prefix, path, target);
    if (found.other) {
      const isOther = `{ var(txn.t) -m str ${id} } !{ var(txn.row) -m found }`;
      rules.push(`http-request set-var(txn.row) str(${undecided}) if ${isOther}`);
    }
    for (const [i, row] of found.hard.entries()) {
      try {
        const literal = literalConditions(row);
        if (literal === null) continue;
        const conditions = [...literal, ...rowConditions(row)];
        rules.push(...chosen(nameOf(sections.target(row)), undecided, conditions, i));
      } catch (error) {
        refused.push({ id: row.id, reason: messageOf(error) });
      }
    }
    return { id, rules: [...rules, ...[...weighted.values()].flat()] };
  };
  return {
    exact,
    prefix,
    refused,
    table(rows) {
      const same = tables.get(rows);
      if (same) return same;
      const rendered = render(String(tables.size), rows);
      tables.set(rows, rendered);
      return rendered;
    },
  };
}

/** Returns the rules that choose among backends: each takes its part of what those before it have left. */
function weightRules({ name, choices }: Extract<Target, { kind: 'weighted' }>): string[] {
  let left = choices.reduce((sum, { weight }) => sum + weight, 0);
  return choices.flatMap(({ section, weight }, i) => {
    const share = i === choices.length - 1 ? [] : [`{ rand(${left}) lt ${weight} }`];
    left -= weight;
    return chosen(section, name, share);
  });
}

/** Returns the conditions of a row's literal path; null: no request has it. An expression has its own; see row-conditions.ts. */
function literalConditions({ path }: RouteRow): string[] | null {
  if (path.kind === 'regex') return [];
  if (mapKey(path.path) === null) return null;
  if (path.kind === 'exact') return [`{ path -m str ${word(path.path)} }`];
  return [`{ var(txn.slashed) -m beg ${word(slashed(path.path))} }`];
}
