import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CHECKED_DSCP } from '../src/kernel/dscp.ts';
import type { NetworkPolicy } from '../src/kube/types.ts';
import { keyOf } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { sourceAddresses } from '../src/network/peer-node.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import {
  connectFrom,
  echoBytes,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from '../src/network/testing/packets.ts';
import { outsideNetns } from '../src/network/topology.ts';
import { allows } from '../src/policy/allows.ts';
import { readClusterPolicy } from '../src/policy/cluster-policy-reader.ts';
import { type Enforcement, removePolicies, startEnforcement } from '../src/policy/enforcement.ts';
import type { RowClusterPolicy } from '../src/policy/policy-row.ts';
import { type RowPacket, rowPacket } from '../src/policy/policy-row.ts';
import { createPolicyTable, type PolicyTable } from '../src/policy/policy-table.ts';
import { POLICY_TABLE } from '../src/policy/render.ts';
import { arrives, listenEverywhere, type Place, routeBy } from '../src/policy/testing/packet-scene.ts';
import {
  ALL,
  NAMESPACES,
  node,
  PODS,
  POLICY_ROWS,
  pod,
  policy,
  withLabels,
} from '../src/policy/testing/policy-objects.ts';
import { randomClusterPolicies, randomPolicies } from '../src/policy/testing/random-policies.ts';

const RANDOM_ROUNDS = 12;
const FAMILIES = [0, 1] as const;

interface NodeUnderTest {
  readonly name: string;
  readonly netns: string;
  readonly table: PolicyTable;
  enforcement: Enforcement;
}

const undo = new Undo();
const places = new Map<string, Place>();
const nodes: NodeUnderTest[] = [];
let nextPort = 20_000;
let present: readonly string[] = [];

before(async () => {
  const topology = testTopology(undo, 2);
  const outside = outsideNetns(topology.cluster);
  places.set('outside', { netns: outside, ips: topology.outsideAddresses });
  for (const number of [1, 2]) {
    const [name, netns] = [`node-${number}`, netnsOf(topology, number)];
    const network = new NodeNetwork({
      ...testNode(number),
      node: name,
      podCidrs: testPodCidrs(number),
      overlay: 'vxlan',
      masquerade: true,
      netns,
    });
    undo.add(() => network.close());
    network.syncRoutes([1, 2].map(testPeer));
    routeBy(outside, testPodCidrs(number), testNode(number).addresses);
    places.set(name, { netns, ips: testNode(number).addresses });
    const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
    undo.add(() => rmSync(stateDir, { recursive: true }));
    const pods = openPodNetwork({ network, stateDir });
    undo.add(() => pods.close());
    for (const { key, node = 'node-1' } of PODS) {
      if (node !== name) continue;
      const inside = sandbox(undo);
      const { ips } = await pods.attach({ uid: key, namespace: 'x', name: key }, inside);
      places.set(key, { netns: inside, ips });
    }
    const table = createPolicyTable(name);
    nodes.push({ name, netns, table, enforcement: enforce(table, netns) });
  }
  undo.add(() => Promise.all(nodes.map(({ enforcement }) => enforcement.close())));
  for (const { table } of nodes) {
    for (const one of NAMESPACES) table.setNamespace(one);
    for (const name of ['node-1', 'node-2']) table.setNode(node(name, places.get(name)?.ips ?? []));
    for (const one of PODS) table.setPod(pod({ ...one, ips: places.get(one.key)?.ips ?? [] }));
  }
  undo.add(await listenEverywhere(places.values()));
});
after(() => undo.run());

const enforce = (
  policies: PolicyTable,
  netns: string,
  proxies: readonly string[] | null = null,
): Enforcement => {
  const enforcement = startEnforcement({
    policies,
    clock: systemClock,
    logger: silentLogger,
    netns,
    proxies: () => proxies,
  });
  enforcement.rewrite();
  return enforcement;
};

async function apply(
  policies: readonly NetworkPolicy[],
  ofCluster: readonly RowClusterPolicy[] = [],
): Promise<void> {
  const cluster = ofCluster.map(({ kind, object }) => readClusterPolicy(kind, object).policy);
  const keys = [...policies.map(keyOf), ...cluster.map(({ key }) => key)];
  for (const { table } of nodes) {
    for (const key of present) if (!keys.includes(key)) table.deletePolicy(key);
    for (const one of policies) table.setPolicy(one);
    for (const one of cluster) table.setClusterPolicy(one);
  }
  present = keys;
  for (const { enforcement } of nodes) enforcement.changed();
  await Promise.all(nodes.map(({ enforcement }) => enforcement.programmed()));
}

const tablesOf = (netns: string) =>
  execFileSync('ip', ['netns', 'exec', netns, 'nft', 'list', 'tables'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(POLICY_TABLE));

/** Sends packets of both families concurrently, and compares the arrivals with the expected ones. */
async function check(packets: readonly { readonly text: string; readonly isAllowed: boolean }[]) {
  const outcomes = packets.flatMap(({ text, isAllowed }) =>
    FAMILIES.map(async (family) => {
      const arrived = await arrives(places, rowPacket(text), family, nextPort++, isAllowed);
      return arrived === isAllowed ? [] : [`${text} IPv${family === 0 ? 4 : 6}: ${arrived}`];
    }),
  );
  assert.deepEqual((await Promise.all(outcomes)).flat(), []);
}

describe('packets pass according to policies', () => {
  for (const { name, policies, clusterPolicies, allowed = [], denied = [] } of POLICY_ROWS) {
    test(name, async () => {
      await apply(policies, clusterPolicies);
      await check([
        ...allowed.map((text) => ({ text, isAllowed: true })),
        ...denied.map((text) => ({ text, isAllowed: false })),
      ]);
    });
  }
});

test('packets of random policies pass according to the oracle', async () => {
  const seen = { true: 0, false: 0 };
  for (let seed = 1; seed <= RANDOM_ROUNDS; seed++) {
    // The routes decide which of its addresses a process of another node sends from.
    const senders = [...places.keys()].filter((name) => name !== 'node-2');
    const { policies, packets } = randomPolicies(seed, senders);
    await apply(policies, seed % 2 === 0 ? randomClusterPolicies(seed) : []);
    const [first] = nodes;
    assert.ok(first);
    const expected = packets.map((text) => {
      const isAllowed = allowedBy(first.table, rowPacket(text));
      seen[`${isAllowed}`]++;
      return { text, isAllowed };
    });
    await check(expected);
  }
  assert.ok(seen.true > 30 && seen.false > 30, JSON.stringify(seen));
});

/** Returns true if both families agree, since each pod and place has an address of both. */
function allowedBy(table: PolicyTable, { from, to, port, protocol }: RowPacket): boolean {
  const [source = '', destination = ''] = [places.get(from)?.ips[0], places.get(to)?.ips[0]];
  const isNode = from.startsWith('node-');
  return allows(table, { source, destination, port, protocol, ...(isNode ? { fromNode: from } : {}) })
    .isAllowed;
}

test('dropped packets are counted, also across a replaced table', async () => {
  const [node] = nodes;
  assert.ok(node);
  const { enforcement } = node;
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })]);
  const [before, sent] = [enforcement.denied('ipv4', 'ingress'), enforcement.denied('ipv4', 'egress')];
  await check([{ text: 'y/a → x/b:53/UDP', isAllowed: false }]);
  assert.equal(enforcement.denied('ipv4', 'ingress'), before + 1);
  enforcement.rewrite();
  await enforcement.programmed();
  assert.equal(enforcement.denied('ipv4', 'ingress'), before + 1);
  await check([{ text: 'y/a → x/b:53/UDP', isAllowed: false }]);
  await apply([]);
  assert.equal(enforcement.denied('ipv4', 'ingress'), before + 2);
  assert.equal(enforcement.denied('ipv4', 'egress'), sent);
});

test('dropped packets are counted by pod, and by the policy of the cluster that denies them', async () => {
  const [node] = nodes;
  assert.ok(node);
  const spec = {
    tier: 'Admin',
    priority: 1,
    subject: { namespaces: withLabels('team=blue') },
    ingress: [{ action: 'Deny', from: [{ namespaces: withLabels('team=red') }] }],
  };
  const kind = 'ClusterNetworkPolicy';
  await apply(
    [policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })],
    [{ kind, object: { metadata: { name: 'no-red' }, spec } }],
  );
  const count = (policy: string | null) =>
    node.enforcement
      .deniedPods()
      .filter((one) => one.pod === 'x/b' && one.direction === 'ingress' && one.policy === policy)
      .map(({ family, packets }) => `${family} ${packets}`)
      .sort();
  const before = count(null);
  await check([{ text: 'y/a → x/b:53/UDP', isAllowed: false }]);
  assert.deepEqual(count('ClusterNetworkPolicy/no-red'), ['ipv4 1', 'ipv6 1']);
  assert.deepEqual(count(null), before);
  node.enforcement.rewrite();
  await node.enforcement.programmed();
  await check([{ text: 'y/a → x/b:53/UDP', isAllowed: false }]);
  assert.deepEqual(count('ClusterNetworkPolicy/no-red'), ['ipv4 2', 'ipv6 2']);
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })]);
  await check([{ text: 'y/a → x/b:53/UDP', isAllowed: false }]);
  const after = count(null).map((text) => Number(text.split(' ')[1]));
  assert.deepEqual(
    after,
    [0, 1].map((index) => Number(before[index]?.split(' ')[1] ?? 0) + 1),
  );
});

test('open connections continue when a policy is created, new ones are denied', async () => {
  await apply([]);
  const server = places.get('x/b');
  const client = places.get('x/a');
  assert.ok(server && client);
  const socket = await connectFrom(undo, client.netns, server.ips[0] ?? '', 80);
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress', 'Egress'] })]);
  assert.ok(await echoBytes(socket, 5000));
  await check([{ text: 'x/a → x/b:80/TCP', isAllowed: false }]);
});

test('rules stay while no agent runs, the next agent adopts them, and they are removed with the last policy', async () => {
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })]);
  const denied = { text: 'y/a → x/b:80/TCP', isAllowed: false };
  await Promise.all(nodes.map(({ enforcement }) => enforcement.close()));
  await check([denied]);
  for (const node of nodes) node.enforcement = enforce(node.table, node.netns);
  await Promise.all(nodes.map(({ enforcement }) => enforcement.programmed()));
  await check([denied]);
  await apply([]);
  await check([{ ...denied, isAllowed: true }]);
  for (const { netns } of nodes) assert.deepEqual(tablesOf(netns), []);
});

test("traffic of another node's proxy passes, other traffic of that node does not", async () => {
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })]);
  const [node] = nodes;
  const [other, pod] = [places.get('node-2'), places.get('z/c')];
  assert.ok(node && other && pod);
  places.set('proxy', { ...other, dscp: CHECKED_DSCP });
  places.set('forger', { ...pod, dscp: CHECKED_DSCP });
  const packets = (isAllowed: boolean) => [
    { text: 'proxy → x/b:80/TCP', isAllowed },
    { text: 'proxy → x/b:53/UDP', isAllowed },
    { text: 'node-2 → x/b:80/TCP', isAllowed: false },
    { text: 'forger → x/b:80/TCP', isAllowed: false },
  ];
  await check(packets(false));
  for (const proxies of [sourceAddresses(testPeer(2)), null]) {
    await node.enforcement.close();
    node.enforcement = enforce(node.table, node.netns, proxies);
    await node.enforcement.programmed();
    await check(packets(proxies !== null));
  }
});

test('cleanup removes the rules of an agent that does not run', async () => {
  await apply([policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] })]);
  const [node] = nodes;
  assert.ok(node);
  await node.enforcement.close();
  assert.equal(tablesOf(node.netns).length, 2);
  await removePolicies(node.netns);
  assert.deepEqual(tablesOf(node.netns), []);
});

test('elements that the kernel rejects: all other policies, also of the other family, are enforced', async () => {
  const netns = sandbox(undo);
  const real = createPolicyTable('node-1');
  real.setNamespace({ metadata: { name: 'x', labels: {} } });
  const addresses = { 'x/a': ['10.244.1.5', 'fd00:10:244:1::5'], 'x/b': ['10.244.1.6', 'fd00:10:244:1::6'] };
  for (const [key, ips] of Object.entries(addresses)) {
    real.plugIn(key, key, ips);
    real.setPod({
      metadata: { namespace: 'x', name: key.slice(2), uid: key, labels: { name: key.slice(2) } },
      spec: { nodeName: 'node-1', containers: [] },
      status: { podIPs: ips.map((ip) => ({ ip })) },
    });
  }
  for (const name of ['a', 'b'])
    real.setPolicy({
      metadata: { namespace: 'x', name: `only-${name}` },
      spec: { podSelector: { matchLabels: { name } }, policyTypes: ['Ingress'] },
    });
  // A table that gives an address of one family to two pods, whose rules differ.
  let isTwice = true;
  const programmedPod = (key: string) => {
    const one = real.programmed(key);
    if (!one || key !== 'x/b' || !isTwice) return one;
    return { ...one, addresses: ['10.244.1.5', 'fd00:10:244:1::6'] };
  };
  const table: PolicyTable = Object.create(real, { programmed: { value: programmedPod } });
  const reported: string[] = [];
  const enforcement = startEnforcement({
    policies: table,
    clock: systemClock,
    logger: silentLogger,
    netns,
    onRefused: (fresh) => reported.push(...fresh.map(({ family, kind, key }) => `${family} ${kind} ${key}`)),
  });
  undo.add(() => enforcement.close());
  enforcement.rewrite();
  await enforcement.programmed();
  const elementsOf = (family: 'ip' | 'ip6') =>
    execFileSync(
      'ip',
      ['netns', 'exec', netns, 'nft', 'list', 'map', family, POLICY_TABLE, 'isolated-ingress'],
      {
        encoding: 'utf8',
      },
    );
  assert.match(elementsOf('ip'), /10\.244\.1\.5/);
  assert.match(elementsOf('ip6'), /fd00:10:244:1::5[\s\S]*fd00:10:244:1::6/);
  assert.deepEqual(reported, ['ipv4 pod x/b']);
  assert.match(enforcement.exposes('x/b')?.error.message ?? '', /EEXIST/);
  assert.equal(enforcement.exposes('x/a'), null);
  // When the cause is gone, it is programmed without another change.
  isTwice = false;
  await eventually(
    () => elementsOf('ip'),
    (text) => text.includes('10.244.1.6'),
  );
  await enforcement.programmed();
  assert.deepEqual(enforcement.refusals(), []);
  assert.deepEqual(reported, ['ipv4 pod x/b']);
});
