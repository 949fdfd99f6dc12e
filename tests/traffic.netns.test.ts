import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, type Counts, HELLO, moreAnswers, startCluster } from './testing/cluster.ts';
import { assertGood, check } from './testing/flow-report.ts';
import { combinations } from './testing/pairwise.ts';

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '--ip-family', 'dual', '-f', HELLO]);
});
after(() => cluster?.down());

/**
 * Asserts that all three pods answer, each a third of 600 requests, give or take ten per cent: five standard deviations.
 */
function assertEven(counts: Counts): void {
  assert.deepEqual(counts.failures, {});
  const shares = Object.values(counts.answers).map((n) => (100 * n) / counts.count);
  assert.equal(shares.length, 3, JSON.stringify(counts.answers));
  for (const share of shares) assert.ok(share > 23.3 && share < 43.3, JSON.stringify(counts.answers));
}

interface Row {
  readonly family: '4' | '6';
  readonly protocol: 'http' | 'udp';
  /** "outside": at the node port of every node. */
  readonly place: 'client' | 'node/node-1' | 'node/node-2' | 'node/node-3' | 'outside';
}

const ROWS = combinations<Row>({
  place: ['client', 'node/node-1', 'node/node-2', 'node/node-3', 'outside'],
  protocol: ['http', 'udp'],
  family: ['4', '6'],
});

for (const { family, protocol, place } of ROWS) {
  if (place !== 'outside') {
    test(`600 requests by name, ${protocol} over IPv${family} from ${place}, reach all three pods evenly`, async () => {
      const url = protocol === 'http' ? 'http://hello' : 'udp://hello:80';
      assertEven(await cluster.request(place, url, '--count', '600', `-${family}`));
    });
    continue;
  }
  test(`NodePort of every node, ${protocol} over IPv${family} from outside, reaches all three pods evenly`, async () => {
    for (const node of cluster.state().nodes) {
      const address = node.addresses.find((one) => one.includes(':') === (family === '6')) ?? '';
      const url = `${protocol}://${address.includes(':') ? `[${address}]` : address}:30080`;
      assertEven(await cluster.request('outside', url, '--count', '600'));
    }
  });
}

test('every flow between nodes in different modes', async () => {
  assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'iptables')).status, 0);
  assert.equal((await cluster.fairlead('mode', '--node', 'node-2', 'ebpf')).status, 0);
  const report = await check(cluster, ['plain:', 'local:']);
  assert.deepEqual(report.modes, { 'node-1': 'iptables', 'node-2': 'ebpf', 'node-3': 'nftables' });
  assertGood(report);
  assert.equal((await cluster.fairlead('mode', 'nftables')).status, 0);
});

test('a client pod on a node without pods of the Service reaches all three', async () => {
  await cluster.ask('cordon', 'node-1');
  await cluster.ask('rollout', 'restart', 'deployment/hello');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  await cluster.ask('uncordon', 'node-1');
  await cluster.ask('cordon', 'node-2');
  await cluster.ask('cordon', 'node-3');
  await cluster.ask('run', 'far', '--image=fairlead', '--command', '--', 'sleep', 'infinity');
  await cluster.ask('wait', '--for=condition=Ready', 'pod/far', '--timeout=120s');
  await cluster.ask('uncordon', 'node-2', 'node-3');
  assert.equal(await cluster.ask('get', 'pod', 'far', '-o', 'jsonpath={.spec.nodeName}'), 'node-1');
  const nodes = (await cluster.pods('app=hello')).map((pod) => pod.node);
  assert.equal(nodes.length, 3);
  assert.ok(!nodes.includes('node-1'), nodes.join(' '));
  for (const family of ['-4', '-6']) {
    assertEven(await cluster.request('far', 'http://hello', '--count', '600', family));
    assertEven(await cluster.request('far', 'udp://hello:80', '--count', '600', family));
  }
});

test('pods answer each other across nodes with their own addresses', async () => {
  const [client] = await cluster.pods('app=client');
  const pods = await cluster.pods('app=hello');
  assert.equal(pods.length, 3);
  for (const pod of pods) {
    for (const ip of pod.ips) {
      const source = client?.ips.find((one) => one.includes(':') === ip.includes(':'));
      const host = ip.includes(':') ? `[${ip}]` : ip;
      const answer = await cluster.request('client', `http://${host}:8080/clientip`);
      const [seen = ''] = Object.keys(answer.answers);
      assert.equal(seen.slice(0, seen.lastIndexOf(':')).replace(/[[\]]/g, ''), source);
    }
  }
});

test('rolling update, scaling and deletion under load lose no request while addresses of pods change', async () => {
  const addresses = async () => (await cluster.pods('app=hello')).flatMap((pod) => pod.ips);
  const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
  const earlier = await addresses();
  const loads = [
    cluster.load('client', 'http://hello'),
    cluster.load('outside', `http://${cluster.state().nodes[0]?.addresses[0]}:30080`),
  ];
  await cluster.ask('rollout', 'restart', 'deployment/hello');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  await cluster.ask('scale', 'deployment/hello', '--replicas=6');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  await cluster.ask('scale', 'deployment/hello', '--replicas=3');
  const [first] = await cluster.pods('app=hello');
  await cluster.ask('delete', 'pod', first?.name ?? '');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  for (const load of loads) {
    const counts = await load.stop();
    assert.ok(counts.count >= 300);
    assert.deepEqual(counts.failures, {});
  }
  assert.equal(await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}'), service);
  const later = await addresses();
  assert.deepEqual(
    later.filter((address) => earlier.includes(address)),
    [],
  );
});

test('without preStop, no request fails once the pod has left the EndpointSlices', async () => {
  await cluster.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: abrupt}
spec:
  replicas: 3
  selector: {matchLabels: {app: abrupt}}
  template:
    metadata: {labels: {app: abrupt}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: echo, image: fairlead, command: [fairlead, echo, --port=8080]}]
---
apiVersion: v1
kind: Service
metadata: {name: abrupt}
spec:
  selector: {app: abrupt}
  ports: [{port: 80, targetPort: 8080}]
`);
  await cluster.ask('rollout', 'status', 'deployment/abrupt', '--timeout=120s');
  await cluster.request('client', 'http://abrupt', '--count', '10');
  for (let round = 0; round < 3; round++) {
    const [pod] = await cluster.pods('app=abrupt');
    const [ip] = pod?.ips ?? [];
    await cluster.ask('delete', 'pod', pod?.name ?? '', '--wait=false');
    await eventually(
      () =>
        cluster.ask(
          'get',
          'endpointslices',
          '-l',
          'kubernetes.io/service-name=abrupt',
          '-o',
          'jsonpath={.items[*].endpoints[*].addresses}',
        ),
      (text) => !text.includes(`"${ip}"`),
    );
    // The client's node gets the change at the same time as kubectl, and on a busy machine kubectl may get
    // it first.
    await eventually(
      () => cluster.fairlead('explain', 'client', 'abrupt:80', '--verbose'),
      ({ out }) => out.includes('DELIVERED') && !out.includes(`${ip}:8080`),
    );
    const counts = await cluster.request('client', 'http://abrupt', '--count', '300');
    assert.deepEqual(counts.failures, {});
  }
});

test('a pod is stopped only when the proxy of every node has left it, however late that one is', async () => {
  await cluster.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: patient}
spec:
  replicas: 3
  selector: {matchLabels: {app: patient}}
  template:
    metadata: {labels: {app: patient}}
    spec:
      containers: [{name: echo, image: fairlead, command: [fairlead, echo, --port=8080]}]
---
apiVersion: v1
kind: Service
metadata: {name: patient}
spec:
  selector: {app: patient}
  ports: [{port: 80, targetPort: 8080}]
`);
  await cluster.ask('rollout', 'status', 'deployment/patient', '--timeout=120s');
  const address = await cluster.ask('get', 'service', 'patient', '-o', 'jsonpath={.spec.clusterIP}');
  const from = await cluster.ask('get', 'pod', 'client', '-o', 'jsonpath={.spec.nodeName}');
  const agent = cluster.state().nodes.find(({ name }) => name === from)?.agent;
  const leaving = (await cluster.pods('app=patient')).find(({ node }) => node !== from);
  assert.ok(agent && leaving);
  process.kill(agent.pid, 'SIGSTOP');
  try {
    await cluster.ask('delete', 'pod', leaving.name, '--wait=false');
    const words = ['--count', '150', '--rate', '50', '--timeout', '15000'];
    const { failures, answers } = await cluster.request('client', `http://${address}`, ...words);
    assert.deepEqual(failures, {});
    assert.ok(leaving.name in answers, 'the rules of the node still lead to the pod');
  } finally {
    process.kill(agent.pid, 'SIGCONT');
  }
  await cluster.ask('wait', '--for=delete', `pod/${leaving.name}`, '--timeout=120s');
});

test('kill -9 of a node agent: traffic continues; a restarted agent adopts its pods without flushing rules', async () => {
  const [node] = cluster.state().nodes;
  assert.ok(node?.agent);
  const pods = () =>
    cluster.ask(
      'get',
      'pods',
      '-o',
      'jsonpath={range .items[*]}{.metadata.uid} {.status.podIP} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].containerID}{"\\n"}{end}',
    );
  const earlier = await pods();
  // By address, since the agent itself answers names.
  const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
  const load = cluster.load('node/node-1', `http://${service}`);
  const connection = cluster.connect('node/node-1', service, 80);
  await cluster.stopSupervisor();
  process.kill(node.agent.pid, 'SIGKILL');
  for (let i = 0; i < 10; i++) await moreAnswers(connection);
  const status = await cluster.fairlead('status');
  assert.equal(status.status, 1);
  assert.match(status.out, /node-1: the agent is not running.*: connections to Services continue/);
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  await eventually(
    () => cluster.fairlead('status'),
    (result) => result.status === 0,
  );
  const counts = await load.stop();
  assert.deepEqual(counts.failures, {});
  assert.ok(counts.count >= 300);
  assert.equal(await pods(), earlier);
  const { requests, answers } = await connection.stop();
  assert.ok(requests > 10);
  assert.equal(answers.size, 1, 'the connection that was open stayed with its pod');
  const scaled = cluster.load('node/node-1', 'http://hello');
  await cluster.ask('scale', 'deployment/hello', '--replicas=4');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  assert.deepEqual((await scaled.stop()).failures, {});
  await cluster.ask('scale', 'deployment/hello', '--replicas=3');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
});

test('kill -9 of the control plane: nothing acknowledged is lost, traffic continues', async () => {
  const { controlPlane } = cluster.state();
  assert.ok(controlPlane);
  const load = cluster.load('client', 'http://hello');
  for (let n = 0; n < 20; n++) await cluster.ask('create', 'configmap', `kept-${n}`, `--from-literal=n=${n}`);
  process.kill(controlPlane.pid, 'SIGKILL');
  await eventually(
    () => cluster.kubectl('get', 'nodes'),
    ({ status }) => status === 0,
  );
  const names = await cluster.ask('get', 'configmaps', '-o', 'name');
  for (let n = 0; n < 20; n++) assert.match(names, new RegExp(`^configmap/kept-${n}$`, 'm'));
  assert.deepEqual((await load.stop()).failures, {});
  // Nodes follow the restarted server.
  await cluster.ask('scale', 'deployment/hello', '--replicas=4');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
});
