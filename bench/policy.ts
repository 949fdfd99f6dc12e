/**
 * Measures the cost of network policies on one node: N pods in the cluster, of which some run here, and policies that each
 * isolate one of these and name 250 peers by their own selector. Cold starts, a pod that comes or goes, and a new connection
 * between two pods of the node, in turns with pods that no policy isolates and with pods of nodes without policies. One of
 * those masquerades, as the nodes of a cluster do, and so tracks connections; the other has no rules of any kind. A further
 * node has the same policies in the layout of a straightforward renderer (policy-layout.ts).
 *
 * node bench/policy.ts [--pods 10000] [--policies 1000] [--rounds 300] [--colds 7] [--naive-rounds 20] [--naive-colds 3]
 *
 * `--naive-colds 0` leaves the comparison out.
 */
import { parseArgs } from 'node:util';
import type { NetworkPolicy, Pod } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { netnsOf, testTopology, Undo } from '../src/network/testing/packets.ts';
import { type Enforcement, removePolicies, startEnforcement } from '../src/policy/enforcement.ts';
import { createPolicyTable, type PolicyTable } from '../src/policy/policy-table.ts';
import { feedCommand } from './feed-command.ts';
import { figures, machineText, measureConnections, type Pair, ratio, startNode } from './pod-pairs.ts';
import {
  NAIVE_TABLE,
  type NaivePod,
  type NaivePolicy,
  naiveChange,
  naiveRules,
  naiveTable,
} from './policy-layout.ts';
import { printTable } from './print-table.ts';
import { kernelMemory } from './programming-measurement.ts';

const PEERS = 250;
const LOCAL_PODS = 100;
const NODE = 'node-1';

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '10000' },
    policies: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '300' },
    colds: { type: 'string', default: '7' },
    'naive-rounds': { type: 'string', default: '20' },
    'naive-colds': { type: 'string', default: '3' },
  },
});
const [podCount, policyCount] = [Number(values.pods), Number(values.policies)];
const [rounds, coldStarts] = [Number(values.rounds), Number(values.colds)];
const [naiveRounds, naiveColds] = [Number(values['naive-rounds']), Number(values['naive-colds'])];
const groupCount = Math.max(1, Math.floor(podCount / PEERS));
/**
 * The pod that receives connections, and the one that sends them. Both are in the middle of their lists, which matters to
 * rules that are compared one after the other.
 */
const SERVER = LOCAL_PODS / 2;
const CLIENT = (SERVER % groupCount) + groupCount * Math.floor(podCount / groupCount / 2);

const addressOf = (index: number) => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;

/** The addresses of the cluster's pods; those of `pair` really exist. */
const addressIn = (pair: Pair) => (index: number) =>
  index === SERVER ? pair.server : index === CLIENT ? pair.client : addressOf(index + 2000);

const podObject = (index: number, ip: string): Pod => ({
  metadata: {
    name: `pod-${index}`,
    namespace: 'bench',
    uid: `uid-${index}`,
    labels: { group: `${index % groupCount}`, index: `${index}` },
  },
  spec: { nodeName: index < LOCAL_PODS ? NODE : 'node-2', containers: [] },
  status: { phase: 'Running', podIPs: [{ ip }] },
});

/** Each policy selects its peers by a different selector, so that no two share a set. */
const policyObject = (index: number): NetworkPolicy => ({
  metadata: { name: `policy-${index}`, namespace: 'bench' },
  spec: {
    podSelector: { matchLabels: { index: `${index % LOCAL_PODS}` } },
    policyTypes: ['Ingress'],
    ingress: [
      {
        from: [
          {
            podSelector: {
              matchLabels: { group: `${index % groupCount}` },
              matchExpressions: [{ key: 'tier', operator: 'NotIn', values: [`${index}`] }],
            },
          },
        ],
        ports: [{ port: 80 }],
      },
    ],
  },
});

const undo = new Undo();

async function main(): Promise<void> {
  const topology = testTopology(undo, 4);
  const netns = netnsOf(topology, 1);
  const plugHere = startNode(undo, 1, netns, true);
  const [isolated, open] = [await plugHere(), await plugHere()];
  const none = await startNode(undo, 2, netnsOf(topology, 2), true)();
  const untracked = await startNode(undo, 3, netnsOf(topology, 3), false)();
  const plugNaive = startNode(undo, 4, netnsOf(topology, 4), true);
  const [naiveIsolated, naiveOpen] = [await plugNaive(), await plugNaive()];
  const naive = naiveNode(netnsOf(topology, 4), addressIn(naiveIsolated));
  const addressAt = addressIn(isolated);
  const objects = {
    pods: Array.from({ length: podCount }, (_, i) => podObject(i, addressAt(i))),
    policies: Array.from({ length: policyCount }, (_, i) => policyObject(i)),
  };
  const cold = { filling: [] as number[], writing: [] as number[], whole: [] as number[] };
  const memory = { own: 0, naive: 0 };
  /** In the order of an agent: policies are read first, then pods. */
  const start = async () => {
    const before = kernelMemory();
    const started = performance.now();
    const table = createPolicyTable(NODE);
    for (const one of objects.policies) table.setPolicy(one);
    table.setNamespace({ metadata: { name: 'bench', labels: {} } });
    for (const one of objects.pods) table.setPod(one);
    const filled = performance.now();
    const enforcement = startEnforcement({
      policies: table,
      clock: systemClock,
      logger: silentLogger,
      netns,
    });
    enforcement.rewrite();
    await enforcement.programmed();
    const written = performance.now();
    cold.filling.push(filled - started);
    cold.writing.push(written - filled);
    cold.whole.push(written - started);
    memory.own ||= kernelMemory() - before;
    return { table, enforcement };
  };
  const naiveCold: number[] = [];
  const startNaive = async () => {
    const before = kernelMemory();
    naiveCold.push(await naive.load());
    memory.naive ||= kernelMemory() - before;
  };
  // In turns, so that other work on the machine affects both.
  for (let i = 1; i < Math.max(coldStarts, naiveColds); i++) {
    if (i < coldStarts) {
      await (await start()).enforcement.close();
      await removePolicies(netns);
    }
    if (i < naiveColds) {
      await startNaive();
      await naive.remove();
    }
  }
  const { table, enforcement } = await start();
  undo.add(() => enforcement.close());
  if (naiveColds > 0) await startNaive();
  const pods = await measurePods(table, enforcement);
  const naivePods = naiveColds > 0 ? await naive.measurePods() : null;
  const pairs: Record<string, Pair> = { isolated, open, none, untracked };
  if (naiveColds > 0) Object.assign(pairs, { naiveIsolated, naiveOpen });
  const times = await measureConnections(rounds * 10, pairs);
  const connections = (name: string) => times[name] ?? [];

  const toNaive = (what: string, own: readonly number[], other: readonly number[]) => [
    `${what}, naive to Fairlead`,
    ratio(other, own),
    '',
    '',
  ];
  printTable([
    ['', 'median', '99 %', 'slowest'],
    [`${podCount} pods, ${policyCount} policies`, '', '', ''],
    ['cold: objects into the table', ...figures(cold.filling, 0)],
    ['cold: rendered and in the kernel', ...figures(cold.writing, 0)],
    ['cold, together', ...figures(cold.whole, 0)],
    ['a pod comes: from the event until the kernel has it', ...figures(pods.added, 2)],
    ['a pod goes', ...figures(pods.removed, 2)],
    ['connection to an isolated pod', ...figures(connections('isolated'), 3)],
    ['connection between pods that no policy isolates', ...figures(connections('open'), 3)],
    ['connection on a node without policies', ...figures(connections('none'), 3)],
    ['connection on a node without any rules', ...figures(connections('untracked'), 3)],
    ['ratio of medians, isolated to none', ratio(connections('isolated'), connections('none')), '', ''],
    ['ratio of medians, not isolated to none', ratio(connections('open'), connections('none')), '', ''],
    [
      'ratio of medians, isolated to no rules',
      ratio(connections('isolated'), connections('untracked')),
      '',
      '',
    ],
    ['elements; kernel memory in MB', `${enforcement.elements()}`, megabytes(memory.own), ''],
    ...(naivePods
      ? [
          ['naive, cold: from known peers until the kernel has them', ...figures(naiveCold, 0)],
          ['naive, a pod comes', ...figures(naivePods.added, 2)],
          ['naive, a pod goes', ...figures(naivePods.removed, 2)],
          ['naive, connection to an isolated pod', ...figures(connections('naiveIsolated'), 3)],
          ['naive, connection to a pod without policies', ...figures(connections('naiveOpen'), 3)],
          ['naive, rules; kernel memory in MB', `${naive.rules}`, megabytes(memory.naive), ''],
          toNaive('cold', cold.whole, naiveCold),
          toNaive('a pod comes', pods.added, naivePods.added),
          toNaive('a pod goes', pods.removed, naivePods.removed),
          toNaive('connection to an isolated pod', connections('isolated'), connections('naiveIsolated')),
          toNaive('connection between other pods', connections('open'), connections('naiveOpen')),
          [
            'naive: ratio of medians, isolated to none',
            ratio(connections('naiveIsolated'), connections('none')),
            '',
            '',
          ],
        ]
      : []),
  ]);
  console.log(`milliseconds; ${coldStarts} cold starts, ${naiveColds} of the naive layout; ${machineText()}`);
}

const megabytes = (bytes: number) => (bytes / 1e6).toFixed(0);

interface NaiveNode {
  readonly rules: number;
  /** Loads the whole table; returns the milliseconds. */
  load(): Promise<number>;
  remove(): Promise<void>;
  measurePods(): Promise<{ added: number[]; removed: number[] }>;
}

/** The same policies on another node, whose renderer knows the peers of each policy from the start. */
function naiveNode(netns: string, addressAt: (index: number) => string): NaiveNode {
  const groups = Array.from({ length: groupCount }, (): string[] => []);
  for (let i = 0; i < podCount; i++) groups[i % groupCount]?.push(addressAt(i));
  const policies = Array.from(
    { length: policyCount },
    (_, i): NaivePolicy => ({ name: `${i}`, peers: groups[i % groupCount] ?? [] }),
  );
  const pods = Array.from(
    { length: LOCAL_PODS },
    (_, i): NaivePod => ({
      address: addressAt(i),
      policies: policies.filter((_, number) => number % LOCAL_PODS === i),
    }),
  );
  const feed = async (text: () => string): Promise<number> => {
    const started = performance.now();
    await feedCommand(netns, 'nft', ['-f', '-'], text());
    return performance.now() - started;
  };
  return {
    rules: naiveRules(pods, policies),
    load: () => feed(() => naiveTable(pods, policies)),
    remove: async () => void (await feed(() => `delete table ${NAIVE_TABLE}\n`)),
    async measurePods() {
      const [added, removed]: [number[], number[]] = [[], []];
      for (let round = 0; round < naiveRounds; round++) {
        const number = podCount + round;
        const concerned = policies.filter((_, i) => i % groupCount === number % groupCount);
        const address = addressOf(number + 3000);
        const more = concerned.map(({ name, peers }) => ({ name, peers: [...peers, address] }));
        added.push(await feed(() => naiveChange(more)));
        removed.push(await feed(() => naiveChange(concerned)));
      }
      return { added, removed };
    },
  };
}

async function measurePods(
  table: PolicyTable,
  enforcement: Enforcement,
): Promise<{ added: number[]; removed: number[] }> {
  const [added, removed]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    for (const [list, change] of [
      [added, () => table.setPod(podObject(podCount + round, addressOf(podCount + 3000 + round)))],
      [removed, () => table.deletePod(`bench/pod-${podCount + round}`)],
    ] as const) {
      const started = performance.now();
      change();
      enforcement.changed();
      await enforcement.programmed();
      list.push(performance.now() - started);
    }
  }
  return { added, removed };
}

try {
  await main();
} finally {
  await undo.run();
}
