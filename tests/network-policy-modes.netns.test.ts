import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { Reach } from '../src/policy/who-can.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';

/** NetworkPolicies mean the same in every mode, also for what goes through Services. */

const MODES = ['nftables', 'ebpf', 'iptables', 'userspace'];

const pod = (name: string, node: string, labels: string, command: string) => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {name: ${name}, ${labels}}}
spec:
  nodeName: ${node}
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: fairlead
      command: [${command}]
      ports: [{name: http, containerPort: 8080}]`;
const server = (
  name: string,
  node: string,
) => `${pod(name, node, 'role: server', 'fairlead, echo, --port=8080')}
---
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {name: ${name}}
  ports: [{port: 80, targetPort: http}]`;

const MANIFEST = [
  server('near', 'node-1'),
  server('far', 'node-2'),
  pod('friend', 'node-1', 'role: friend', 'sleep, infinity'),
  pod('foe', 'node-1', 'role: foe', 'sleep, infinity'),
  pod('walled', 'node-1', 'role: friend, walled: "yes"', 'sleep, infinity'),
].join('\n---');

const POLICIES = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: servers}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress:
    - from: [{podSelector: {matchLabels: {role: friend}}}]
      ports: [{port: http}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: walled}
spec:
  podSelector: {matchLabels: {walled: "yes"}}
  policyTypes: [Egress]
  egress:
    - to: [{podSelector: {matchLabels: {name: near}}}]
    - to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
          podSelector: {matchLabels: {k8s-app: kube-dns}}
      ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]`;

interface Row {
  readonly from: string;
  /** The name of a Service; "pod NAME": the pod itself; "node port NAME": on node-1. */
  readonly to: string;
  readonly isAllowed: boolean;
}

const ROWS: readonly Row[] = [
  { from: 'friend', to: 'near', isAllowed: true },
  { from: 'friend', to: 'far', isAllowed: true },
  { from: 'friend', to: 'pod near', isAllowed: true },
  { from: 'friend', to: 'pod far', isAllowed: true },
  { from: 'foe', to: 'near', isAllowed: false },
  { from: 'foe', to: 'far', isAllowed: false },
  { from: 'foe', to: 'pod near', isAllowed: false },
  { from: 'foe', to: 'pod far', isAllowed: false },
  { from: 'walled', to: 'near', isAllowed: true },
  { from: 'walled', to: 'far', isAllowed: false },
  { from: 'walled', to: 'pod far', isAllowed: false },
  { from: 'near', to: 'near', isAllowed: true },
  { from: 'node/node-1', to: 'pod near', isAllowed: true },
  { from: 'outside', to: 'node port near', isAllowed: false },
];

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual']);
  await cluster.apply(MANIFEST);
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
});
after(() => cluster?.down());

async function urlOf(to: string, family: '4' | '6'): Promise<string> {
  const [, what = '', name = ''] = /^(?:(pod|node port) )?(\S+)$/.exec(to) ?? [];
  const isOf = (address: string) => address.includes(':') === (family === '6');
  const host = (address = '') => (address.includes(':') ? `[${address}]` : address);
  if (what === 'pod') {
    const [found] = await cluster.pods(`name=${name}`);
    return `http://${host(found?.ips.find(isOf))}:8080`;
  }
  if (what === 'node port') {
    const port = await cluster.ask('get', 'service', name, '-o', 'jsonpath={.spec.ports[0].nodePort}');
    return `http://${host(cluster.state().nodes[0]?.addresses.find(isOf))}:${port}`;
  }
  // Not the name alone: the hosts file of the pod itself has that.
  return `http://${name}.default`;
}

/** A packet that is denied is not waited for as long as one that must arrive. */
const TIMEOUT_MS = { allowed: 5000, denied: 1000 };

async function isAnswered({ from, to, isAllowed }: Row, family: '4' | '6'): Promise<boolean> {
  const url = await urlOf(to, family);
  const options = /^http:\/\/[a-z]/.test(url) ? [`-${family}`] : [];
  const timeout = isAllowed ? TIMEOUT_MS.allowed : TIMEOUT_MS.denied;
  const { answers } = await cluster.request(from, url, '--count=1', `--timeout=${timeout}`, ...options);
  return Object.keys(answers).length > 0;
}

async function wrongRows(): Promise<string[]> {
  const found = await Promise.all(
    (['4', '6'] as const).flatMap((family) =>
      ROWS.map(async (row) => {
        const answered = await isAnswered(row, family);
        return answered === row.isAllowed ? [] : [`${row.from} → ${row.to}, IPv${family}: ${answered}`];
      }),
    ),
  );
  return found.flat();
}

test('without policies all is answered', async () => {
  const denied = ROWS.filter(({ isAllowed }) => !isAllowed);
  for (const row of denied) {
    assert.ok(await isAnswered({ ...row, isAllowed: true }, '4'), `${row.from} → ${row.to}`);
  }
  await cluster.apply(POLICIES);
});

for (const mode of MODES) {
  describe(mode, () => {
    test('policies allow and deny, both families', async () => {
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
      // A busy machine may need longer than a client waits.
      await eventually(wrongRows, (wrong) => wrong.length === 0, 60_000);
    });
  });
}

test('explain --who-can names the rule that admits, and the pods that it selects', async () => {
  const { out, error } = await cluster.fairlead('explain', '--who-can', 'near:http', '--json');
  const reach = JSON.parse(out || error) as Reach;
  assert.deepEqual(reach.isolatedBy, ['default/servers']);
  assert.deepEqual(reach.admissions, [
    {
      policy: 'default/servers',
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
  }
});

test('kill -9 of the agents: policies stay in force', async () => {
  assert.equal((await cluster.fairlead('mode', 'nftables')).status, 0);
  await cluster.stopSupervisor();
  for (const { agent } of cluster.state().nodes) if (agent) process.kill(agent.pid, 'SIGKILL');
  for (const row of ROWS.filter(({ to }) => to.startsWith('pod '))) {
    assert.equal(await isAnswered(row, '4'), row.isAllowed, `${row.from} → ${row.to}`);
  }
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
});

test('the first packets of a pod that starts are judged', async () => {
  const near = await urlOf('pod near', '4');
  const names = [1, 2, 3, 4].map((number) => `first-${number}`);
  await cluster.apply(
    names
      .map((name) => pod(name, 'node-2', 'role: foe', `fairlead, request, "${near}", --count=20`))
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
