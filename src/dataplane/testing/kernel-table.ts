import { type Attributes, eachAttribute, readAttributes, readText } from '../../kernel/netlink/attributes.ts';
import type { NftConnection } from '../../kernel/nftables/connection.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import { hexOf } from '../../nft/encoding.ts';

/** An expression of a rule in a dump: its name and NFTA_EXPR_DATA. */
export interface ShownExpression {
  readonly name: string;
  readonly attributes: Attributes;
}

/** A family's table as dumped from the kernel. */
export interface KernelTable {
  readonly chains: ReadonlyMap<string, readonly (readonly ShownExpression[])[]>;
  /** Each chain's rules as bytes, to compare. */
  readonly ruleBytes: ReadonlyMap<string, readonly string[]>;
  readonly sets: ReadonlyMap<string, ReadonlyMap<string, DumpedElement>>;
}

export function readKernelTable(connection: NftConnection, protocol: number, tableName: string): KernelTable {
  const rules = connection.rules(protocol, tableName);
  const names = connection.chains(protocol, tableName);
  const sets = connection
    .sets(protocol, tableName)
    .map(
      ({ name }) =>
        [
          name,
          new Map(
            connection.elements(protocol, tableName, name).map((element) => [hexOf(element.key), element]),
          ),
        ] as const,
    );
  return {
    chains: new Map(names.map((name) => [name, (rules.get(name) ?? []).map(expressionsOf)])),
    ruleBytes: new Map(names.map((name) => [name, (rules.get(name) ?? []).map(hexOf)])),
    sets: new Map(sets),
  };
}

function expressionsOf(rule: Uint8Array): ShownExpression[] {
  return [...eachAttribute(rule)].map(([, bytes]) => {
    const expression = readAttributes(bytes);
    return {
      name: readText(expression.get(1) ?? new Uint8Array(1)),
      attributes: readAttributes(expression.get(2) ?? new Uint8Array(0)),
    };
  });
}

/** The part of a table that must not depend on the order of changes. */
export interface TableContent {
  /** Chain → rules. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
  /** "set key" → data, verdict or comment; for endpoints "map key" → all values, in order. */
  readonly elements: ReadonlyMap<string, string>;
}

/**
 * Returns a table without the parts that may differ: the slots of endpoints, and the order of affinity
 * timeouts.
 */
export function contentOf(table: KernelTable): TableContent {
  const elements = new Map<string, string>();
  const pools = new Map<string, string[]>();
  for (const [set, content] of table.sets) {
    for (const [key, element] of content) {
      const { data, keyEnd, verdict, comment, intervalEnd } = element;
      if (set.includes('endpoints-')) {
        const pool = `${set} ${key.slice(0, -8)}`;
        pools.set(pool, [...(pools.get(pool) ?? []), data ? hexOf(data) : '']);
        const slot = element.key.at(-4) ?? 0;
        pools.get(pool)?.sort();
        elements.set(`${pool} slot ${slot}`, 'taken');
      } else {
        const value = [data && hexOf(data), keyEnd && hexOf(keyEnd), verdict, comment, intervalEnd];
        elements.set(`${set} ${key}`, value.filter((part) => part !== null).join(' '));
      }
    }
  }
  for (const [pool, endpoints] of pools) elements.set(pool, endpoints.join(' '));
  const chains = new Map(
    [...table.ruleBytes].map(([chain, rules]) => [chain, chain === 'remember' ? rules.toSorted() : rules]),
  );
  return { chains, elements };
}
