import { encodeExpressions } from '../../kernel/nftables/batch.ts';
import type { NftConnection } from '../../kernel/nftables/connection.ts';
import { isShownAs } from '../../kernel/nftables/dump.ts';
import type { Drift } from '../dataplane.ts';
import { compareElements, type Elements } from '../nftables/verify.ts';
import { hexOf } from '../words.ts';
import { TABLE } from './layout.ts';
import { INTERFACE } from './service-interface.ts';
import type { SteeringTable } from './steering-table.ts';

/** Compares a family's rules with what the kernel has. */
export function compareTable(connection: NftConnection, table: SteeringTable): Drift[] {
  const { protocol } = table.layout;
  const name = `table ${table.family === 'ipv4' ? 'ip' : 'ip6'} ${TABLE}`;
  if (!connection.tables(protocol).some((t) => t.name === TABLE)) return [{ object: name, kind: 'missing' }];
  const drifts: Drift[] = [];
  const chains = new Set(connection.chains(protocol, TABLE));
  const rules = connection.rules(protocol, TABLE);
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
  return [...drifts, ...compareElements(table.expected(), readElements(connection, protocol), name)];
}

/** Every element of every set of our table. */
export function readElements(connection: NftConnection, protocol: number): Elements {
  const all: Elements = new Map();
  for (const { name } of connection.sets(protocol, TABLE)) {
    const interval = name.endsWith('-networks');
    const elements = connection.elements(protocol, TABLE, name).map((e): [string, string] => {
      if (e.verdict !== null) return [hexOf(e.key), e.verdict];
      if (e.data) return [hexOf(e.key), hexOf(e.data)];
      if (e.keyEnd) return [hexOf(e.key), hexOf(e.keyEnd)];
      return [hexOf(e.key), interval ? (e.intervalEnd ? 'end' : 'start') : ''];
    });
    all.set(name, new Map(elements));
  }
  return all;
}

/** Compares the addresses of our interface; `wanted` are those that it must have. */
export function compareAddresses(
  wanted: ReadonlySet<string>,
  shown: ReadonlySet<string>,
  others: ReadonlySet<string>,
): Drift[] {
  const drifts: Drift[] = [];
  for (const address of wanted) {
    const object = `address ${address} of ${INTERFACE}`;
    if (!shown.has(address)) drifts.push({ object, kind: 'missing' });
    else if (others.has(address)) drifts.push({ object, kind: 'unexpected' });
  }
  for (const address of shown) {
    if (!wanted.has(address))
      drifts.push({ object: `address ${address} of ${INTERFACE}`, kind: 'unexpected' });
  }
  return drifts;
}
