import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { Reach } from '../src/policy/who-can.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './testing/cluster-policy-definitions.ts';
import { createPolicyTraffic, MANIFEST, POLICIES, pod, ROWS, type Row } from './testing/policy-traffic.ts';
import { createAskers } from './testing/question-asker.ts';

/**
 * NetworkPolicies stay in force when agents die, and are explained and counted; those of the whole cluster apply in every mode.
 * tests/promise has their effect in each mode.
 */

/** Denies what the NetworkPolicy of the servers allows, and accepts what it denies. */
const CLUSTER_POLICY = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: swap}
spec:
  tier: Admin
  priority: 10
  subject:
    pods:
      namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
      podSelector: {matchLabels: {name: near}}
  ingress:
    - name: no-friends
      action: Deny
      from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {name: friend}}}}]
    - action: Accept
      from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {name: foe}}}}]`;

const MODES = ['nftables', 'ebpf', 'iptables', 'userspace'];

const FAMILIES = [4, 6] as const;
/** Longer than an answer takes, and than the second after which TCP repeats a packet. */
const PATIENCE_MS = 2500;

let cluster: Cluster;
const askers = createAskers(() => cluster);
const traffic = createPolicyTraffic(() => cluster, askers);
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual']);
  await cluster.apply(MANIFEST);
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
});
after(() => {
  askers.stop();
  return cluster?.down();
});

/** What a client meets that connects to the Services, by name. */
async function connected(from: string, family: 4 | 6): Promise<Readonly<Record<string, string>>> {
  const met = ['near', 'far'].map(async (name) => [
    name,
    await meet(from, await addressOf(name, family), 80),
  ]);
  return Object.fromEntries(await Promise.all(met));
}

async function meet(from: string, host: string, port: number): Promise<string> {
  const family = host.includes(':') ? 6 : 4;
  const question = { host, port, protocol: 'tcp', family, count: 1, patienceMs: PATIENCE_MS } as const;
  const [met] = await askers.in(from).ask(question);
  return met?.kind ?? '';
}

async function addressOf(service: string, family: 4 | 6): Promise<string> {
  const addresses = await cluster.ask('get', 'service', service, '-o', 'jsonpath={.spec.clusterIPs}');
  const found = (JSON.parse(addresses) as string[]).find((one) => one.includes(':') === (family === 6));
  assert.ok(found);
  return found;
}

test('without policies all requests are answered', async () => {
  const rows = ROWS.map((row) => ({ ...row, isAllowed: true }));
  assert.deepEqual(await traffic.wrongRows(rows, [4]), []);
  await cluster.apply(POLICIES);
});

test('userspace mode: policies allow and deny, both families', async () => {
  const { status, error } = await cluster.fairlead('mode', 'userspace');
  assert.equal(status, 0, error);
  // A busy machine may need longer than a client waits.
  await eventually(
    () => traffic.wrongRows(ROWS),
    (wrong) => wrong.length === 0,
    60_000,
  );
});

test('kill -9 of an agent in userspace mode: denied connections are refused, then silent with a new one', async () => {
  await cluster.stopSupervisor();
  const [node] = cluster.state().nodes;
  assert.ok(node?.agent);
  process.kill(node.agent.pid, 'SIGKILL');
  await eventually(
    () => connected('foe', 4),
    (met) => isDeepStrictEqual(met, { near: 'refused', far: 'refused' }),
  );
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  // Never accepted in between.
  for (const family of FAMILIES) {
    let met: Readonly<Record<string, string>> = {};
    do {
      met = await connected('foe', family);
      for (const kind of Object.values(met)) assert.match(kind, /^(refused|silence)$/);
    } while (Object.values(met).includes('refused'));
    await eventually(
      () => connected('friend', family),
      (answers) => isDeepStrictEqual(answers, { near: 'answer', far: 'answer' }),
    );
    assert.deepEqual(await connected('foe', family), { near: 'silence', far: 'silence' });
  }
});

test('explain --who-can names the rule that admits, and the selected pods', async () => {
  const { out, error } = await cluster.fairlead('explain', '--who-can', 'near:http', '-o', 'json');
  const reach = JSON.parse(out || error) as Reach;
  assert.deepEqual(reach.isolatedBy, ['default/servers']);
  assert.deepEqual(reach.admissions, [
    {
      policy: 'default/servers',
      action: 'Accept',
      field: 'spec.ingress[0].from[0]',
      peer: 'pods with role=friend in namespace default',
      pods: ['default/friend', 'default/walled'],
    },
  ]);
  assert.deepEqual(reach.allowed.toSorted(), ['default/friend', 'default/walled']);
});

test('packets that policies drop are counted, by direction and family', async () => {
  const script = "fetch('http://127.0.0.1:10249/metrics').then((r) => r.text()).then(console.log)";
  const { out, error } = await cluster.fairlead('exec', 'node/node-1', '--', process.execPath, '-e', script);
  for (const family of ['ipv4', 'ipv6']) {
    for (const direction of ['ingress', 'egress']) {
      const series = `fairlead_policy_denied_packets_total{direction="${direction}",ip_family="${family}"}`;
      const line = out.split('\n').find((one) => one.startsWith(series));
      assert.ok(Number(line?.split(' ')[1]) > 0, `${series}: ${line}${error}`);
    }
    const series = `fairlead_policy_denied_pod_packets_total{namespace="default",pod="near",policy="",direction="ingress",ip_family="${family}"}`;
    const line = out.split('\n').find((one) => one.startsWith(series));
    assert.ok(Number(line?.split(' ')[1]) > 0, `${series}: ${line}`);
  }
});

test('policies of the whole cluster apply while their definitions are installed, in each mode', async () => {
  const rows: Row[] = [
    { from: 'friend', to: 'near', isAllowed: false },
    { from: 'friend', to: 'pod near', isAllowed: false },
    { from: 'friend', to: 'far', isAllowed: true },
    { from: 'foe', to: 'near', isAllowed: true },
    { from: 'foe', to: 'pod near', isAllowed: true },
    { from: 'near', to: 'near', isAllowed: true },
  ];
  const settled = (wanted: readonly Row[]) =>
    eventually(
      () => traffic.wrongRows(wanted),
      (wrong) => wrong.length === 0,
      60_000,
    );
  await cluster.apply(CLUSTER_POLICY_DEFINITIONS);
  await eventually(
    () => cluster.ask('get', 'clusternetworkpolicies'),
    () => true,
    60_000,
  );
  await cluster.apply(CLUSTER_POLICY);
  try {
    await cluster.ask('wait', '--for=condition=Accepted', 'clusternetworkpolicy', 'swap', '--timeout=60s');
    for (const mode of MODES) {
      assert.equal((await cluster.fairlead('mode', mode)).status, 0);
      await settled(rows);
    }
    const { out } = await cluster.fairlead('explain', 'friend', 'svc/near:80');
    const text = out.replaceAll(/\s+/g, ' ');
    assert.match(text, /ClusterNetworkPolicy swap \(tier Admin\) denies ingress to pod default\/near/);
  } finally {
    const definition = 'clusternetworkpolicies.policy.networking.k8s.io';
    await cluster.ask('delete', 'customresourcedefinition', definition);
  }
  await settled(ROWS.filter(({ from }) => from === 'friend' || from === 'foe'));
});

test('kill -9 of the agents: policies stay in force', async () => {
  assert.equal((await cluster.fairlead('mode', 'nftables')).status, 0);
  await cluster.stopSupervisor();
  for (const { agent } of cluster.state().nodes) if (agent) process.kill(agent.pid, 'SIGKILL');
  const toPods = ROWS.filter(({ to }) => to.startsWith('pod '));
  assert.deepEqual(await traffic.wrongRows(toPods, [4]), []);
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
});

test('policies apply to the first packets of a starting pod', async () => {
  const { host, port } = await traffic.targetOf('pod near', 4);
  const names = [1, 2, 3, 4].map((number) => `first-${number}`);
  await cluster.apply(
    names
      .map((name) =>
        pod(name, 'node-2', 'role: foe', `fairlead, request, "http://${host}:${port}", --count=20`),
      )
      .join('\n---'),
  );
  for (const name of names) {
    const state = () => cluster.ask('get', 'pod', name, '-o', 'jsonpath={.status.containerStatuses[0]}');
    await eventually(
      state,
      (text) => /restartCount":[1-9]/.test(text) || text.includes('terminated'),
      120_000,
    );
    const log = await cluster.ask('logs', name);
    assert.doesNotMatch(log, /^near/m, log);
  }
});
