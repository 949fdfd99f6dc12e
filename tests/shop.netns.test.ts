import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, type RunningPod, startCluster } from './testing/cluster.ts';

// A cluster of five nodes that are connected over VXLAN, both families: the shop of the examples, and two
// applications that call each other.

const SHOP = join(import.meta.dirname, '..', 'examples', 'shop.yaml');
let cluster: Cluster;

before(async () => {
  cluster = await startCluster([
    ...['--nodes', '5', '--ip-family', 'dual', '--overlay', 'vxlan', '--timeout', '180', '-f', SHOP],
  ]);
});
after(() => cluster?.down());

const shop = async (...args: string[]) => await cluster.ask('-n', 'shop', ...args);
const curl = async (place: string, url: string) => {
  const { out, error } = await cluster.fairlead('exec', place, '--', 'curl', '-sgS', '--max-time', '10', url);
  return out || error;
};
const bracketed = (ip: string) => (ip.includes(':') ? `[${ip}]` : ip);

describe('the shop', () => {
  // "web from web-… (you are …)" and, indented, the answers of the services behind it.
  const CHAIN =
    /^shop from (web-\S+) \(you are (\S+)\)\n {2}http:\/\/api: api from (api-\S+) \(you are (\S+)\)\n {4}http:\/\/cache: cache from (cache-\S+) .*\n {4}http:\/\/orders:8080: database from (database-0) .*\n$/;

  test('it is reachable from outside at its load-balancer addresses, and every service behind it answers', async () => {
    const ingress = await eventually(
      async () =>
        (await shop('get', 'service', 'web', '-o', 'jsonpath={.status.loadBalancer.ingress[*].ip}')).split(
          ' ',
        ),
      (ips) => ips.length === 2,
    );
    for (const ip of ingress) {
      // The node that announces the address may not have been chosen yet.
      const answer = await eventually(
        () => curl('outside', `http://${bracketed(ip)}/`),
        (text) => CHAIN.test(text),
      );
      assert.match(answer, CHAIN);
    }
  });
  test('both pods of web get requests', async () => {
    const { answers, failures } = await cluster.request('shop/customer', 'http://web', '--count', '100');
    assert.deepEqual(failures, {});
    assert.equal(Object.keys(answers).length, 2);
  });
  test('every node’s port leads to the api, on both families', async () => {
    for (const { addresses } of cluster.state().nodes) {
      for (const address of addresses) {
        assert.match(await curl('outside', `http://${bracketed(address)}:30081/hostname`), /^api-/);
      }
    }
  });
  test('a client of the cache keeps its pod', async () => {
    const { answers, failures } = await cluster.request(
      'shop/customer',
      'http://cache',
      '--count',
      '60',
      '-4',
    );
    assert.deepEqual([Object.values(answers), failures], [[60], {}]);
  });
  test('each pod of the database has its own name, and the Service’s name has the addresses of both', async () => {
    for (const name of ['database-0', 'database-1']) {
      assert.equal(await curl('shop/customer', `http://${name}.database:8080/hostname`), `${name}\n`);
    }
    const { out } = await cluster.fairlead('exec', 'shop/customer', '--', 'getent', 'ahostsv4', 'database');
    assert.equal(new Set(out.split('\n').flatMap((line) => line.split(' ')[0] || [])).size, 2);
  });
  test('an alias resolves to the first database', async () => {
    assert.equal(await curl('shop/customer', 'http://orders:8080/hostname'), 'database-0\n');
  });
  test('a deleted pod of the database is recreated with its name', async () => {
    const uid = () =>
      shop('get', 'pod', 'database-0', '--ignore-not-found', '-o', 'jsonpath={.metadata.uid}');
    const before = await uid();
    await shop('delete', 'pod', 'database-0', '--wait=false');
    await eventually(uid, (now) => now !== '' && now !== before, 60_000);
    await shop('wait', '--for=condition=Ready', 'pod/database-0', '--timeout=120s');
    const answer = await eventually(
      () => curl('shop/customer', 'http://orders:8080/hostname'),
      (text) => text === 'database-0\n',
    );
    assert.equal(answer, 'database-0\n');
  });
});

describe('two applications with two replicas each on four nodes, and a fifth node without any', () => {
  /** A pod on one of its nodes: its replicas run on different nodes. */
  const app = (name: string, nodes: string[]) => `
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  replicas: 2
  selector: {matchLabels: {app: ${name}}}
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [${nodes.join(', ')}]}]
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: ${name}}}}
      containers:
        - name: echo
          image: fairlead
          command: [fairlead, echo]
          readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 2}
---
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: ${name}}
  ports: [{port: 80, targetPort: 8080}]
`;
  const visitor = `
apiVersion: v1
kind: Pod
metadata: {name: visitor, labels: {app: visitor}}
spec:
  nodeName: node-5
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: fairlead, command: [sleep, infinity]}]
`;
  const pods: Record<string, RunningPod[]> = {};
  before(async () => {
    await cluster.apply(
      [app('left', ['node-1', 'node-2']), app('right', ['node-3', 'node-4']), visitor].join('---'),
    );
    for (const name of ['left', 'right']) {
      await cluster.ask('rollout', 'status', `deployment/${name}`, '--timeout=120s');
      pods[name] = await cluster.pods(`app=${name}`);
    }
    await cluster.ask('wait', '--for=condition=Ready', 'pod/visitor', '--timeout=120s');
  });

  test('the replicas are on four nodes', () => {
    const nodes = [...(pods['left'] ?? []), ...(pods['right'] ?? [])].map(({ node }) => node);
    assert.deepEqual(nodes.sort(), ['node-1', 'node-2', 'node-3', 'node-4']);
  });
  const COUNT = 400;
  for (const [from, to] of [
    ['left', 'right'],
    ['right', 'left'],
  ] as const) {
    for (const family of ['-4', '-6']) {
      test(`clients of ${from} call ${to} by its name (${family}): requests are distributed evenly on every node and in total`, async () => {
        const sum = new Map<string, number>();
        for (const { name } of pods[from] ?? []) {
          const { answers, failures } = await cluster.request(
            name,
            `http://${to}`,
            '--count',
            String(COUNT),
            family,
          );
          assert.deepEqual(failures, {});
          assert.deepEqual(Object.keys(answers).sort(), (pods[to] ?? []).map((pod) => pod.name).sort());
          for (const [pod, count] of Object.entries(answers)) {
            // Half, give or take six standard deviations of a fair coin.
            assert.ok(Math.abs(count - COUNT / 2) < 6 * Math.sqrt(COUNT / 4), `${name} → ${pod}: ${count}`);
            sum.set(pod, (sum.get(pod) ?? 0) + count);
          }
        }
        for (const count of sum.values())
          assert.ok(Math.abs(count - COUNT) < 6 * Math.sqrt(COUNT / 2), String(count));
      });
    }
  }
  for (const place of ['visitor', 'node/node-5']) {
    test(`${place} reaches both from the fifth node`, async () => {
      for (const name of ['left', 'right']) {
        const { answers, failures } = await cluster.request(
          place,
          `http://${name}.default`,
          '--count',
          '100',
        );
        assert.deepEqual(failures, {});
        assert.equal(Object.keys(answers).length, 2);
      }
    });
  }
  test('pods see each other’s addresses over VXLAN, without translation', async () => {
    const [target] = pods['right'] ?? [];
    const [visiting] = await cluster.pods('app=visitor');
    for (const [i, ip] of (target?.ips ?? []).entries()) {
      const client = (await curl('visitor', `http://${bracketed(ip)}:8080/clientip`)).trim();
      assert.equal(client.replace(/:[0-9]+$/, ''), bracketed(visiting?.ips[i] ?? ''));
    }
    const device = await cluster.fairlead(
      'exec',
      'node/node-5',
      '--',
      'ip',
      '-d',
      'link',
      'show',
      'fl.vxlan',
    );
    assert.match(device.out, /mtu 1450 .*\n.*\n.*vxlan id 4242 .* nolearning/);
  });
});
