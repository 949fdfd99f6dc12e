/**
 * What network policies cost on one node: N pods in the cluster, of which some run here, and policies that each isolate
 * one of these and name 250 peers by their own selector. Cold starts, a pod that comes or goes, and a new connection
 * between two pods of the node, in turns with pods that no policy isolates and with pods of nodes without policies. One of
 * those masquerades, as the nodes of a cluster do, and so tracks connections; the other has no rules of any kind.
 *
 * node bench/policy.ts [--pods 10000] [--policies 1000] [--rounds 300] [--colds 7]
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { listenTcpIn, openTcpIn } from '../src/kernel/netns.ts';
import type { NetworkPolicy, Pod } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import { netnsOf, sandbox, testNode, testTopology, Undo } from '../src/network/testing/packets.ts';
import { type Enforcement, removePolicies, startEnforcement } from '../src/policy/enforcement.ts';
import { createPolicyTable, type PolicyTable } from '../src/policy/policy-table.ts';
import { printTable } from './print-table.ts';

const PEERS = 250;
const LOCAL_PODS = 100;
/** Connections that are not counted: the first ones are slower. */
const WARM_UP = 300;
const NODE = 'node-1';

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '10000' },
    policies: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '300' },
    colds: { type: 'string', default: '7' },
  },
});
const [podCount, policyCount] = [Number(values.pods), Number(values.policies)];
const [rounds, coldStarts] = [Number(values.rounds), Number(values.colds)];
const groupCount = Math.max(1, Math.floor(podCount / PEERS));

const addressOf = (index: number) => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;

const podObject = (index: number, ip = addressOf(index)): Pod => ({
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

interface Pair {
  readonly server: string;
  readonly client: string;
  readonly clientNetns: string;
}

/** Connects pods to a node's network; the result attaches pairs of them, one of which listens. */
function startNode(number: number, netns: string, masquerade: boolean): () => Promise<Pair> {
  const podCidrs = [`10.100.${number}.0/24`];
  const network = new NodeNetwork({
    ...testNode(number),
    node: `node-${number}`,
    podCidrs,
    overlay: 'routes',
    masquerade,
    netns,
  });
  undo.add(() => network.close());
  network.syncRoutes([]);
  const stateDir = mkdtempSync(join(tmpdir(), 'flb-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const pods = openPodNetwork({ network, stateDir });
  undo.add(() => pods.close());
  let count = 0;
  const attach = async (inside: string) => {
    const name = `pod-${number}-${count++}`;
    return (await pods.attach({ uid: name, namespace: 'bench', name }, inside)).ips[0] ?? '';
  };
  return async () => {
    const [serverNetns, clientNetns] = [sandbox(undo), sandbox(undo)];
    const [server, client] = [await attach(serverNetns), await attach(clientNetns)];
    const listener = createServer((socket) => socket.destroy()).listen({
      fd: listenTcpIn(serverNetns, server, 80),
    });
    await once(listener, 'listening');
    undo.add(() => listener.close());
    return { server, client, clientNetns };
  };
}

async function main(): Promise<void> {
  const topology = testTopology(undo, 3);
  const netns = netnsOf(topology, 1);
  const plugHere = startNode(1, netns, true);
  const [isolated, open] = [await plugHere(), await plugHere()];
  const none = await startNode(2, netnsOf(topology, 2), true)();
  const untracked = await startNode(3, netnsOf(topology, 3), false)();
  // Pod 0 is isolated by policies that all select the groups of other pods; the last client is in one of
  // these groups.
  const clientIndex = groupCount * Math.ceil(LOCAL_PODS / groupCount);
  const addressAt = (index: number) =>
    index === 0 ? isolated.server : index === clientIndex ? isolated.client : addressOf(index + 1000);
  const objects = {
    pods: Array.from({ length: podCount }, (_, i) => podObject(i, addressAt(i))),
    policies: Array.from({ length: policyCount }, (_, i) => policyObject(i)),
  };
  const filling: number[] = [];
  const writing: number[] = [];
  const whole: number[] = [];
  let elements = 0;
  /** In the order of an agent: policies are read first, then pods. */
  const start = async () => {
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
    filling.push(filled - started);
    writing.push(written - filled);
    whole.push(written - started);
    elements = enforcement.elements();
    return { table, enforcement };
  };
  for (let i = 1; i < coldStarts; i++) {
    await (await start()).enforcement.close();
    await removePolicies(netns);
  }
  const { table, enforcement } = await start();
  undo.add(() => enforcement.close());
  const pods = await measurePods(table, enforcement);
  const connections = await measureConnections({ isolated, open, none, untracked });

  printTable([
    ['', 'median', '99 %', 'slowest'],
    [`${podCount} pods, ${policyCount} policies, ${elements} elements`, '', '', ''],
    ['cold: objects into the table', ...figures(filling, 0)],
    ['cold: rendered and in the kernel', ...figures(writing, 0)],
    ['cold, together', ...figures(whole, 0)],
    ['a pod comes: from the event until the kernel has it', ...figures(pods.added, 2)],
    ['a pod goes', ...figures(pods.removed, 2)],
    ['connection to an isolated pod', ...figures(connections.isolated, 3)],
    ['connection between pods that no policy isolates', ...figures(connections.open, 3)],
    ['connection on a node without policies', ...figures(connections.none, 3)],
    ['connection on a node without any rules', ...figures(connections.untracked, 3)],
    ['ratio of medians, isolated to none', ratio(connections.isolated, connections.none), '', ''],
    ['ratio of medians, not isolated to none', ratio(connections.open, connections.none), '', ''],
    ['ratio of medians, isolated to no rules', ratio(connections.isolated, connections.untracked), '', ''],
  ]);
  const load = loadavg().map((one) => one.toFixed(1));
  console.log(
    `milliseconds; ${coldStarts} cold starts; ${cpus()[0]?.model}, ${cpus().length} processors, load average ${load.join(', ')}`,
  );
}

const figures = (list: readonly number[], digits: number): string[] => [
  percentile(list, 0.5).toFixed(digits),
  percentile(list, 0.99).toFixed(digits),
  Math.max(...list).toFixed(digits),
];

const ratio = (a: readonly number[], b: readonly number[]) =>
  (percentile(a, 0.5) / percentile(b, 0.5)).toFixed(3);

async function measurePods(
  table: PolicyTable,
  enforcement: Enforcement,
): Promise<{ added: number[]; removed: number[] }> {
  const [added, removed]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    for (const [list, change] of [
      [added, () => table.setPod(podObject(podCount + round, addressOf(podCount + 2000 + round)))],
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

/**
 * Measures milliseconds from connect to connected, the pairs in turn, so that other work on the machine
 * affects all alike.
 */
async function measureConnections<K extends string>(pairs: Record<K, Pair>): Promise<Record<K, number[]>> {
  const names = Object.keys(pairs) as K[];
  const times = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  for (let round = 0; round < WARM_UP + rounds * 10; round++) {
    for (let i = 0; i < names.length; i++) {
      const name = names[(round + i) % names.length] as K;
      const took = await connect(pairs[name]);
      if (round >= WARM_UP) times[name].push(took);
    }
  }
  return times;
}

async function connect({ clientNetns, server }: Pair): Promise<number> {
  const socket = new Socket({ fd: openTcpIn(clientNetns, 'ipv4') });
  const started = performance.now();
  socket.connect(80, server);
  await once(socket, 'connect');
  const took = performance.now() - started;
  socket.destroy();
  return took;
}

const percentile = (list: readonly number[], share: number): number =>
  list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ?? 0;

try {
  await main();
} finally {
  await undo.run();
}
