import { type BaseChain, type Expression, encodeExpressions } from '../kernel/nftables/batch.ts';
import type { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { type DumpedElement, isShownAs } from '../kernel/nftables/dump.ts';
import type { IPFamily } from '../lib/address.ts';
import { hexOf } from '../nft/encoding.ts';
import type { Drift } from './dataplane.ts';

export interface ChainDefinition {
  readonly name: string;
  readonly base?: BaseChain;
  readonly rules: readonly (readonly Expression[])[];
}

/** The elements of every set of a table: by set, key (hexadecimal) → value; "*" stands for any data, and for none. */
export type Elements = Map<string, Map<string, string>>;

/** What a table must hold. */
export interface ExpectedTable {
  readonly chains: ReadonlyMap<string, ChainDefinition>;
  expected(): Elements;
}

/** A set whose elements the rules write: the clients that affinity remembers. */
const WRITTEN_BY_RULES = 'affinity';

/** Compares a family's table of rules with what the kernel has. Null: there should be none. */
export function compareNfTable(
  connection: NftConnection,
  family: IPFamily,
  tableName: string,
  wanted: ExpectedTable | null,
): Drift[] {
  const protocol = NFPROTO[family];
  const name = `table ${family === 'ipv4' ? 'ip' : 'ip6'} ${tableName}`;
  const exists = connection.tables(protocol).some((t) => t.name === tableName);
  if (!wanted) return exists ? [{ object: name, kind: 'unexpected' }] : [];
  if (!exists) return [{ object: name, kind: 'missing' }];
  return [
    ...compareChains(connection, protocol, tableName, name, wanted.chains),
    ...compareElements(wanted.expected(), readElements(connection, family, tableName), name),
  ];
}

/** Every element of every set of a table but those that the rules write. */
export function readElements(connection: NftConnection, family: IPFamily, table: string): Elements {
  const protocol = NFPROTO[family];
  const all: Elements = new Map();
  for (const { name } of connection.sets(protocol, table)) {
    if (name === WRITTEN_BY_RULES) continue;
    const elements = connection.elements(protocol, table, name);
    const interval = name.endsWith('-networks');
    all.set(name, new Map(elements.map((e) => [hexOf(e.key), shownValue(e, interval)])));
  }
  return all;
}

function compareChains(
  connection: NftConnection,
  protocol: number,
  tableName: string,
  table: string,
  chains: ReadonlyMap<string, ChainDefinition>,
): Drift[] {
  const drifts: Drift[] = [];
  const shown = new Set(connection.chains(protocol, tableName));
  const rules = connection.rules(protocol, tableName);
  for (const chain of shown) {
    if (!chains.has(chain)) drifts.push({ object: `${table} chain ${chain}`, kind: 'unexpected' });
  }
  for (const chain of chains.values()) {
    const object = `${table} chain ${chain.name}`;
    if (!shown.has(chain.name)) drifts.push({ object, kind: 'missing' });
    else if (!areShownAs(chain, rules.get(chain.name) ?? [])) drifts.push({ object, kind: 'different' });
  }
  return drifts;
}

const areShownAs = ({ rules }: ChainDefinition, shown: readonly Uint8Array[]): boolean =>
  shown.length === rules.length &&
  rules.every((rule, i) => isShownAs(encodeExpressions(rule), shown[i] ?? new Uint8Array(0)));

function shownValue({ verdict, data, keyEnd, intervalEnd }: DumpedElement, interval: boolean): string {
  if (verdict !== null) return verdict;
  if (data) return hexOf(data);
  if (keyEnd) return hexOf(keyEnd);
  return interval ? (intervalEnd ? 'end' : 'start') : '';
}

function compareElements(expected: Elements, shown: Elements, table: string): Drift[] {
  const drifts: Drift[] = [];
  for (const [set, elements] of expected) {
    if (set === WRITTEN_BY_RULES) continue;
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
    for (const [key, value] of there) {
      // The kernel shows where the space between two networks starts.
      if (!elements.has(key) && value !== 'end') {
        drifts.push({ object: `${object} element ${key}`, kind: 'unexpected' });
      }
    }
  }
  for (const set of shown.keys()) {
    if (!expected.has(set)) drifts.push({ object: `${table} map ${set}`, kind: 'unexpected' });
  }
  return drifts;
}
