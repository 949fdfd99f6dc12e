import { NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { encodeExpressions } from '../../kernel/nftables/batch.ts';
import type { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { type DumpedElement, isShownAs } from '../../kernel/nftables/dump.ts';
import { listSockets, TCP_STATE } from '../../kernel/sock-diag.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Drift } from '../dataplane.ts';
import { hostPort } from './balancer.ts';
import type { FamilyTable } from './family-table.ts';
import { TABLE } from './layout.ts';
import type { PoolListener } from './pool-listeners.ts';

const NETLINK_SOCK_DIAG = 4;

/** A table's elements: by set, key (hex) → value, as `FamilyTable.expected` writes them. */
export type Elements = Map<string, Map<string, string>>;

/** Compares a family's table with what the kernel has. Null: nothing was programmed yet. */
export function compareTable(
  connection: NftConnection,
  family: IPFamily,
  table: FamilyTable | null,
): Drift[] {
  const protocol = NFPROTO[family];
  const name = `table ${family === 'ipv4' ? 'ip' : 'ip6'} ${TABLE}`;
  const exists = connection.tables(protocol).some((t) => t.name === TABLE);
  if (!table) return exists ? [{ object: name, kind: 'unexpected' }] : [];
  if (!exists) return [{ object: name, kind: 'missing' }];
  return [
    ...compareChains(connection, protocol, name, table),
    ...compareElements(table.expected(), readElements(connection, family), name),
  ];
}

/** Compares the listeners with the namespace's sockets. */
export function compareListeners(listeners: Iterable<PoolListener>, netns: NetnsRef | undefined): Drift[] {
  const wanted = [...listeners];
  if (wanted.length === 0) return [];
  using socket = new NetlinkSocket({
    protocol: NETLINK_SOCK_DIAG,
    ...(netns === undefined ? {} : { netns }),
  });
  const there = new Set<string>();
  for (const family of ['ipv4', 'ipv6'] as const) {
    for (const [protocol, states] of [
      ['tcp', TCP_STATE.listen],
      ['udp', undefined],
    ] as const) {
      for (const { local, localPort } of listSockets(socket, family, protocol, states)) {
        there.add(`${protocol} ${hostPort({ ip: local, port: localPort })}`);
      }
    }
  }
  return wanted
    .map(({ protocol, at, pool }) => ({
      name: `${protocol.toLowerCase()} ${hostPort({ ip: at.address, port: at.port })}`,
      pool,
    }))
    .filter(({ name }) => !there.has(name))
    .map(({ name, pool }) => ({ object: `listener ${name} of ${pool}`, kind: 'missing' }));
}

/** Every element of every set of a family's table. */
export function readElements(connection: NftConnection, family: IPFamily): Elements {
  const protocol = NFPROTO[family];
  const all: Elements = new Map();
  for (const { name } of connection.sets(protocol, TABLE)) {
    const interval = name.endsWith('-networks');
    const elements = connection.elements(protocol, TABLE, name);
    all.set(name, new Map(elements.map((e) => [hexOf(e.key), shownValue(e, interval)])));
  }
  return all;
}

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

function shownValue({ verdict, data, keyEnd, intervalEnd }: DumpedElement, interval: boolean): string {
  if (verdict !== null) return verdict;
  if (data) return hexOf(data);
  if (keyEnd) return hexOf(keyEnd);
  return interval ? (intervalEnd ? 'end' : 'start') : '';
}

function compareChains(
  connection: NftConnection,
  protocol: number,
  name: string,
  table: FamilyTable,
): Drift[] {
  const drifts: Drift[] = [];
  const shown = new Set(connection.chains(protocol, TABLE));
  const rules = connection.rules(protocol, TABLE);
  const wanted = new Map(table.layout.chains.map((chain) => [chain.name, chain]));
  for (const chain of shown) {
    if (!wanted.has(chain)) drifts.push({ object: `${name} chain ${chain}`, kind: 'unexpected' });
  }
  for (const chain of wanted.values()) {
    const object = `${name} chain ${chain.name}`;
    const there = rules.get(chain.name) ?? [];
    if (!shown.has(chain.name)) drifts.push({ object, kind: 'missing' });
    else if (
      there.length !== chain.rules.length ||
      !chain.rules.every((rule, i) => isShownAs(encodeExpressions(rule), there[i] ?? new Uint8Array(0)))
    ) {
      drifts.push({ object, kind: 'different' });
    }
  }
  return drifts;
}

function compareElements(expected: Elements, shown: Elements, table: string): Drift[] {
  const drifts: Drift[] = [];
  for (const [set, elements] of expected) {
    const object = `${table} map ${set}`;
    const there = shown.get(set);
    if (!there) {
      drifts.push({ object, kind: 'missing' });
      continue;
    }
    for (const [key, value] of elements) {
      const other = there.get(key);
      if (other === undefined) drifts.push({ object: `${object} element ${key}`, kind: 'missing' });
      else if (other !== value) drifts.push({ object: `${object} element ${key}`, kind: 'different' });
    }
    for (const [key, value] of there) {
      // The kernel shows where the space between two networks starts.
      if (!elements.has(key) && value !== 'end')
        drifts.push({ object: `${object} element ${key}`, kind: 'unexpected' });
    }
  }
  for (const set of shown.keys()) {
    if (!expected.has(set)) drifts.push({ object: `${table} map ${set}`, kind: 'unexpected' });
  }
  return drifts;
}
