/**
 * Measures the cost of the source guard and of the answers for unused addresses: connections, and round trips over an open
 * connection, between pods of a node with them and of one from which they were removed, in turns; and how long a pod's guard takes on a
 * node with many pods. `--unused-alone`: only the answers are removed, and the guard stays.
 *
 * node bench/source-guard.ts [--rounds 4000] [--pods 250] [--unused-alone]
 */
import { parseArgs } from 'node:util';
import { addLink, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import { tunnelMac } from '../src/network/overlay-routes.ts';
import { openSourceGuard, removeSourceGuard } from '../src/network/source-guard.ts';
import type { GuardedPort } from '../src/network/source-guard-rules.ts';
import { netnsOf, sandbox, testTopology, Undo } from '../src/network/testing/packets.ts';
import { removeUnusedAddresses } from '../src/network/unused-addresses.ts';
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
    'unused-alone': { type: 'boolean', default: false },
  },
});
const [rounds, pods] = [Number(values.rounds), Number(values.pods)];
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
  const topology = testTopology(undo, 2);
  // Both track connections, as every node does whose pods have policies or are masqueraded.
  const node = (number: number) => startNode(undo, number, netnsOf(topology, number), true);
  const [one, other] = [node(1), node(2)];
  const [guarded, free] = [await one(), await other()];
  // The table belongs to its process as long as that uses it.
  other.closePods();
  if (!values['unused-alone']) removeSourceGuard(netnsOf(topology, 2));
  removeUnusedAddresses(netnsOf(topology, 2));
  const connections = await measureConnections(rounds, { guarded, free });
  const trips = await measureRoundTrips(rounds * 2, { guarded, free });
  const protection = await measureProtection();
  printTable([
    ['milliseconds', 'median', '99 %', 'slowest'],
    ['connection between guarded pods', ...figures(connections.guarded, 4)],
    ['connection without the guard', ...figures(connections.free, 4)],
    ['ratio of medians', ratio(connections.guarded, connections.free), '', ''],
    ['round trip between guarded pods', ...figures(trips.guarded, 4)],
    ['round trip without the guard', ...figures(trips.free, 4)],
    ['ratio of medians', ratio(trips.guarded, trips.free), '', ''],
    [`a pod of ${pods} gets its guard`, ...figures(protection, 3)],
  ]);
  console.log(`${rounds} connections of each; ${machineText()}`);
}

try {
  await main();
} finally {
  await undo.run();
}
