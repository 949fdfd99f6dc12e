import { messageOf } from '../../lib/errors.ts';
import type { RouteRow } from '../route-map.ts';
import { type PathGroup, pathGroups } from './path-groups.ts';
import { mapKey } from './quote.ts';
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

/**
 * The variable txn.row is the name of a section, or of a group of rows or backends, among which rules of the frontend choose:
 * each replaces it, so that the following ones do not apply.
 */
const chosen = (name: string, from: string, conditions: readonly string[]): string =>
  ['http-request set-var(txn.row)', `str(${name}) if`, `{ var(txn.row) -m str ${from} }`, ...conditions].join(
    ' ',
  );

export function createPathTables(sections: SectionTable): PathTables {
  const tables = new Map<readonly RouteRow[], PathTable>();
  const exact: string[] = [];
  const prefix: string[] = [];
  const refused: RefusedRow[] = [];
  let groups = 0;

  const render = (id: string, rows: readonly RouteRow[]): PathTable => {
    const rules: string[] = [];
    const weighted = new Map<string, readonly string[]>();
    const nameOf = (target: Target): string => {
      if (target.kind === 'weighted') weighted.set(target.name, weightRules(target));
      return target.name;
    };
    const groupName = ({ rows, isClosed }: PathGroup): string => {
      const [first] = rows;
      if (first && isClosed && rows.length === 1) return nameOf(sections.target(first));
      const name = `g${groups++}`;
      for (const row of rows) {
        try {
          rules.push(chosen(nameOf(sections.target(row)), name, rowConditions(row)));
        } catch (error) {
          refused.push({ id: row.id, reason: messageOf(error) });
        }
      }
      return name;
    };
    const put = (lines: string[], path: string, group: PathGroup) => {
      const key = mapKey(id + path);
      if (key !== null) lines.push(`${key} ${groupName(group)}`);
    };
    const found = pathGroups(rows);
    for (const [path, group] of found.exact) put(exact, path, group);
    for (const [path, group] of found.prefix) put(prefix, path, group);
    if (found.other !== null) {
      const isOther = `{ var(txn.t) -m str ${id} } !{ var(txn.row) -m found }`;
      rules.unshift(`http-request set-var(txn.row) str(${groupName(found.other)}) if ${isOther}`);
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
  return choices.map(({ section, weight }, i) => {
    const share = i === choices.length - 1 ? [] : [`{ rand(${left}) lt ${weight} }`];
    left -= weight;
    return chosen(section, name, share);
  });
}
