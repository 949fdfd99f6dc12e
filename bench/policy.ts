/**
 * What network policies cost on one node: N pods in the cluster, of which some run here, and policies that each isolate
 * one of these and name 250 peers of their own. Cold start, a pod that comes or goes, and the first packet of a
 * connection between two pods of the node, against none.
 *
 * node bench/policy.ts [--pods 10000] [--policies 1000] [--rounds 300]
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { listenTcpIn, openTcpIn } from '../src/kernel/netns.ts';
import type { NetworkPolicy, Pod } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import { netnsOf, sandbox, testNode, testTopology, Undo } from '../src/network/testing/packets.ts';
import { startEnforcement } from '../src/policy/enforcement.ts';
import { createPolicyTable, type PolicyTable } from '../src/policy/policy-table.ts';
import { printTable } from './print-table.ts';

const PEERS = 250;
const LOCAL_PODS = 100;
const NODE = 'node-1';

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '10000' },
    policies: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '300' },
  },
});
const [podCount, policyCount, rounds] = [Number(values.pods), Number(values.policies), Number(values.rounds)];
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

/** Each names its peers by a selector of its own, so that no two share a set. */
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
  const topology = testTopology(undo, 1);
  const netns = netnsOf(topology, 1);
  const network = new NodeNetwork({
    ...testNode(1),
    node: NODE,
    podCidrs: ['10.100.0.0/24'],
    overlay: 'routes',
    netns,
  });
  undo.add(() => network.close());
  const stateDir = mkdtempSync(join(tmpdir(), 'flb-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const pods = openPodNetwork({ network, stateDir });
  undo.add(() => pods.close());
  const [server, client] = [sandbox(undo), sandbox(undo)];
  const attach = async (name: string, inside: string) =>
    (await pods.attach({ uid: name, namespace: 'bench', name }, inside)).ips[0] ?? '';
  const serverAddress = await attach('server', server);
  const clientAddress = await attach('client', client);
  const listener = createServer((socket) => socket.destroy()).listen({
    fd: listenTcpIn(server, serverAddress, 80),
  });
  await once(listener, 'listening');
  undo.add(() => listener.close());

  // The first ones are slower, whatever they meet.
  await firstPackets(client, serverAddress);
  const table = createPolicyTable(NODE);
  const filling = performance.now();
  table.setNamespace({ metadata: { name: 'bench', labels: {} } });
  // The two pods that packets go between: 0 is isolated by policies that all name the group of the last.
  const clientIndex = groupCount * Math.ceil(LOCAL_PODS / groupCount);
  for (let i = 0; i < podCount; i++) {
    table.setPod(
      podObject(i, i === 0 ? serverAddress : i === clientIndex ? clientAddress : addressOf(i + 1000)),
    );
  }
  for (let i = 0; i < policyCount; i++) table.setPolicy(policyObject(i));
  const filled = performance.now();
  const kernel: number[] = [];
  const enforcement = startEnforcement({
    policies: table,
    clock: systemClock,
    logger: silentLogger,
    netns,
    onProgrammed: ({ latencyMs }) => kernel.push(latencyMs),
  });
  undo.add(() => enforcement.close());
  enforcement.rewrite();
  await enforcement.programmed();
  const cold = performance.now();
  const elements = enforcement.elements();

  const comes = await measurePods(table, enforcement, kernel);
  const withPolicies = await firstPackets(client, serverAddress);
  const all = table.all();
  for (const key of all.policies) table.deletePolicy(key);
  enforcement.changed();
  await enforcement.programmed();
  const without = await firstPackets(client, serverAddress);

  printTable([
    ['pods, policies, elements', `${podCount}, ${policyCount}, ${elements}`],
    ['cold: objects into the table', `${(filled - filling).toFixed(0)} ms`],
    ['cold: rendered and in the kernel', `${(cold - filled).toFixed(0)} ms`],
    ['a pod comes: from the event until the kernel has it, median', `${median(comes.added).toFixed(2)} ms`],
    ['a pod goes, median', `${median(comes.removed).toFixed(2)} ms`],
    ['connection with policies, median', `${(1000 * median(withPolicies)).toFixed(0)} µs`],
    ['connection without, median', `${(1000 * median(without)).toFixed(0)} µs`],
    ['ratio', (median(withPolicies) / median(without)).toFixed(3)],
  ]);
  process.stdout.write(`${cpus()[0]?.model}, ${cpus().length} processors\n`);
}

async function measurePods(
  table: PolicyTable,
  enforcement: { changed(): void; programmed(): Promise<void> },
  kernel: number[],
): Promise<{ added: number[]; removed: number[] }> {
  const [added, removed]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    for (const [list, change] of [
      [added, () => table.setPod(podObject(podCount + round, addressOf(podCount + 2000 + round)))],
      [removed, () => table.deletePod(`bench/pod-${podCount + round}`)],
    ] as const) {
      kernel.length = 0;
      const started = performance.now();
      change();
      enforcement.changed();
      await enforcement.programmed();
      list.push(performance.now() - started);
    }
  }
  return { added, removed };
}

/** Milliseconds from connect to connected, each on a new connection. */
async function firstPackets(netns: string, address: string): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < rounds * 5; round++) {
    const socket = new Socket({ fd: openTcpIn(netns, 'ipv4') });
    const started = performance.now();
    socket.connect(80, address);
    await once(socket, 'connect');
    times.push(performance.now() - started);
    socket.destroy();
  }
  return times;
}

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1] ?? 0;

try {
  await main();
} finally {
  await undo.run();
}
