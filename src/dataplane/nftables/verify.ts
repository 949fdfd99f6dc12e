import { encodeExpressions } from '../../kernel/nftables/batch.ts';
import type { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { type DumpedElement, isShownAs } from '../../kernel/nftables/dump.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Drift } from '../dataplane.ts';
import { hexOf } from '../words.ts';
import type { FamilyTable } from './family-table.ts';

/** The elements of every set of a table, as `FamilyTable.expected` writes them. */
export type Elements = Map<string, Map<string, string>>;

/** Compares a family's table with what the kernel has. Null: nothing was programmed yet. */
export function compareWithKernel(
  connection: NftConnection,
  family: IPFamily,
  tableName: string,
  table: FamilyTable | null,
): Drift[] {
  const protocol = NFPROTO[family];
  const name = `table ${family === 'ipv4' ? 'ip' : 'ip6'} ${tableName}`;
  const exists = connection.tables(protocol).some((t) => t.name === tableName);
  if (!table) return exists ? [{ object: name, kind: 'unexpected' }] : [];
  if (!exists) return [{ object: name, kind: 'missing' }];
  return [
    ...compareChains(connection, protocol, name, table),
    ...compareElements(table.expected(), readAllElements(connection, protocol, tableName), name),
  ];
}

function compareChains(
  connection: NftConnection,
  protocol: number,
  name: string,
  table: FamilyTable,
): Drift[] {
  const drifts: Drift[] = [];
  const chains = new Set(connection.chains(protocol, table.name));
  const rules = connection.rules(protocol, table.name);
  for (const chain of chains) {
    if (!table.chains.has(chain)) drifts.push({ object: `${name} chain ${chain}`, kind: 'unexpected' });
  }
  for (const chain of table.chains.values()) {
    const object = `${name} chain ${chain.name}`;
    if (!chains.has(chain.name)) {
      drifts.push({ object, kind: 'missing' });
      continue;
    }
    const shown = rules.get(chain.name) ?? [];
    const same =
      shown.length === chain.rules.length &&
      chain.rules.every((rule, i) => isShownAs(encodeExpressions(rule), shown[i] ?? new Uint8Array(0)));
    if (!same) drifts.push({ object, kind: 'different' });
  }
  return drifts;
}

/** Every element of every set of our table but the remembered clients. */
export function readAllElements(connection: NftConnection, protocol: number, table: string): Elements {
  const all: Elements = new Map();
  for (const { name } of connection.sets(protocol, table)) {
    if (name === 'affinity') continue;
    const elements = connection.elements(protocol, table, name);
    const interval = name.endsWith('-networks');
    all.set(name, new Map(elements.map((e) => [hexOf(e.key), shownValue(e, interval)])));
  }
  return all;
}

function shownValue(element: DumpedElement, interval: boolean): string {
  if (element.verdict !== null) return element.verdict;
  if (element.data) return hexOf(element.data);
  if (element.keyEnd) return hexOf(element.keyEnd);
  return interval ? (element.intervalEnd ? 'end' : 'start') : '';
}

/** Differences of two tables' elements; "*" stands for any data, and for none. */
export function compareElements(expected: Elements, shown: Elements, table: string): Drift[] {
  const drifts: Drift[] = [];
  for (const [set, elements] of expected) {
    if (set === 'affinity') continue;
    const there = shown.get(set);
    const object = `${table} map ${set}`;
    if (!there) {
      drifts.push({ object, kind: 'missing' });
      continue;
    }
    for (const [key, value] of elements) {
      const other = there.get(key);
      if (value === '*') continue;
      if (other === undefined) drifts.push({ object: `${object} element ${key}`, kind: 'missing' });
      else if (other !== value) drifts.push({ object: `${object} element ${key}`, kind: 'different' });
    }
    for (const key of there.keys()) {
      // The kernel shows where the space between two networks starts.
      if (!elements.has(key) && there.get(key) !== 'end') {
        drifts.push({ object: `${object} element ${key}`, kind: 'unexpected' });
      }
    }
  }
  for (const set of shown.keys()) {
    if (!expected.has(set)) drifts.push({ object: `${table} map ${set}`, kind: 'unexpected' });
  }
  return drifts;
}
