/**
 * Measures the cost of the source guard and of the answers for unused addresses: connections, and round trips over an open
 * connection, between pods of nodes with and without them, in turns; and how long a pod's guard takes on a node with many pods.
 * Two nodes are without both, which shows what differs between equal nodes; on another one a chain that accepts everything is in
 * the guard's place: what any rule at this hook costs.
 *
 * node bench/source-guard.ts [--rounds 4000] [--pods 250]
 */
import { parseArgs } from 'node:util';
import { PRIORITY } from '../src/kernel/nftables/priorities.ts';
import { addLink, listLinks, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import { tunnelMac } from '../src/network/overlay-routes.ts';
import { openSourceGuard, removeSourceGuard } from '../src/network/source-guard.ts';
import type { GuardedPort } from '../src/network/source-guard-rules.ts';
import { netnsOf, sandbox, testTopology, Undo } from '../src/network/testing/packets.ts';
import { removeUnusedAddresses } from '../src/network/unused-addresses.ts';
import { keepTables } from '../src/nft/kept-tables.ts';
import { accept } from '../src/nft/rule.ts';
import {
  figures,
  machineText,
  measureConnections,
  measureRoundTrips,
  ratio,
  startNode,
} from './pod-pairs.ts';
import { printTable } from './print-table.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '4000' },
    pods: { type: 'string', default: '250' },
  },
});
const [rounds, pods] = [Number(values.rounds), Number(values.pods)];
const TRIPS_IN_ROW = 16;
const BARE = { isGuarded: false, answersUnused: false, hasEmptyChain: false };
const SUBJECTS = [
  { ...BARE, name: 'without' },
  { ...BARE, name: 'without, another node' },
  { ...BARE, name: 'a chain that accepts all', hasEmptyChain: true },
  { ...BARE, name: 'guard', isGuarded: true },
  { ...BARE, name: 'answers for unused addresses', answersUnused: true },
  { ...BARE, name: 'both', isGuarded: true, answersUnused: true },
] as const;
const undo = new Undo();

async function measureProtection(): Promise<number[]> {
  const netns = sandbox(undo);
  using socket = openRouteSocket(netns);
  const ports = Array.from({ length: pods }, (_, i): GuardedPort => {
    const port = `flp${i}`;
    addLink(socket, { kind: 'veth', name: port, peer: { name: `peer${i}` } });
    return { port, pod: `x/${i}`, mac: tunnelMac(port), ips: [`10.9.0.${i}`, `fd00::${i}`], extra: [] };
  });
  const guard = openSourceGuard({ isRequired: true, gatewayMac: tunnelMac('gateway'), ports, netns });
  if (!guard) throw new Error('the kernel has no guard');
  undo.add(() => guard.close());
  const times: number[] = [];
  for (const port of ports) {
    await guard.release(port.port);
    const started = performance.now();
    await guard.protect(port, true);
    times.push(performance.now() - started);
  }
  return times;
}

async function main(): Promise<void> {
  const topology = testTopology(undo, SUBJECTS.length);
  const started = await Promise.all(
    SUBJECTS.map(async (subject, i) => {
      const netns = netnsOf(topology, i + 1);
      // All track connections, as every node does whose pods have policies or are masqueraded.
      const start = startNode(undo, i + 1, netns, true);
      const pair = await start();
      // The tables belong to their process as long as that uses them.
      start.closePods();
      if (!subject.isGuarded) removeSourceGuard(netns);
      if (!subject.answersUnused) removeUnusedAddresses(netns);
      if (subject.hasEmptyChain) acceptAll(netns);
      return [subject.name, pair] as const;
    }),
  );
  const pairs = Object.fromEntries(started);
  const times = {
    connection: await measureConnections(rounds, pairs),
    'round trip': await measureRoundTrips(rounds, pairs),
    [`each of ${TRIPS_IN_ROW} trips in a row`]: await measureRoundTrips(
      Math.ceil(rounds / 4),
      pairs,
      TRIPS_IN_ROW,
    ),
  };
  const protection = await measureProtection();
  printTable([
    ['milliseconds', 'node', 'median', '99 %', 'slowest', 'of without'],
    ...Object.entries(times).flatMap(([what, measured]) =>
      SUBJECTS.map(({ name }) => {
        const [own, base] = [measured[name] ?? [], measured[SUBJECTS[0].name] ?? []];
        return [what, name, ...figures(own, 4), ratio(own, base)];
      }),
    ),
    [`a pod of ${pods} gets its guard`, '', ...figures(protection, 3), ''],
  ]);
  console.log(`${rounds} connections of each; ${machineText()}`);
}

/** Puts a chain that accepts everything where the guard has its chains. */
function acceptAll(netns: string): void {
  using socket = openRouteSocket(netns);
  const tables = keepTables({ netns, families: ['netdev'], name: 'accept-all', owned: false });
  const chains = listLinks(socket)
    .filter(({ name }) => name.startsWith('fl') && name !== 'fl0')
    .map(({ name }) => ({ name: `port-${name}`, base: ingressOf(name), rules: [[accept]] }));
  tables.write('netdev', { family: 'netdev', name: 'accept-all', sets: [], chains, groups: new Map() });
  undo.add(() => tables.close());
}

const ingressOf = (device: string) =>
  ({ type: 'filter', hook: 'ingress', priority: PRIORITY.first, device }) as const;

try {
  await main();
} finally {
  await undo.run();
}
