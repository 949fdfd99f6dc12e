import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Cluster, eventually, HELLO, startCluster } from './support/cluster.ts';

// Nodes that are emptied and tainted while their pods serve, and what a pod knows of its cluster.

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '-f', HELLO]);
});
after(() => cluster?.down());

const serving = async () => (await cluster.pods('app=hello')).map(({ node }) => node);
const settled = () => cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
/** A node with a server that the client, which asks all the time, is not on. */
async function nodeToEmpty(): Promise<string> {
  const [client] = await cluster.pods('app=client');
  const node = (await serving()).find((name) => name !== client?.node);
  assert.ok(node);
  return node;
}

test('drain moves pods elsewhere, and their Service answers all the while', async () => {
  const node = await nodeToEmpty();
  const load = cluster.load('client', 'http://hello');
  const out = await cluster.ask(
    'drain',
    node,
    '--ignore-daemonsets',
    '--delete-emptydir-data',
    '--timeout=120s',
  );
  assert.match(out, new RegExp(`node/${node} drained`));
  await settled();
  const { count, failures } = await load.stop();
  assert.deepEqual(failures, {}, `of ${count}`);
  const nodes = await serving();
  assert.equal(nodes.length, 3);
  assert.ok(!nodes.includes(node), nodes.join());
  await cluster.ask('uncordon', node);
});

test('a taint NoExecute ends pods that do not tolerate it, at once or when their time is over', async () => {
  const pod = (name: string, tolerations: string) => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {app: tolerant}}
spec:
  nodeName: node-3
  terminationGracePeriodSeconds: 0
  tolerations: ${tolerations}
  containers: [{name: main, image: host, command: [sleep, infinity]}]
`;
  const toleration = (more = '') => `{key: repairs, operator: Exists, effect: NoExecute${more}}`;
  await cluster.apply(
    [
      pod('none', '[]'),
      pod('brief', `[${toleration(', tolerationSeconds: 3')}]`),
      pod('always', `[${toleration()}]`),
    ].join('---'),
  );
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '-l', 'app=tolerant', '--timeout=60s');
  await cluster.ask('taint', 'node', 'node-3', 'repairs=now:NoExecute');
  const names = async () => (await cluster.pods('app=tolerant')).map(({ name }) => name).sort();
  await eventually(names, (left) => !left.includes('none'), 60_000);
  await eventually(names, (left) => left.join() === 'always', 60_000);
  await settled();
  assert.ok(!(await serving()).includes('node-3'));
  await cluster.ask('taint', 'node', 'node-3', 'repairs-');
});

test('a pod can ask the API server, with its token and the cluster’s authority', async () => {
  const folder = '/var/run/secrets/kubernetes.io/serviceaccount';
  const ask = (path: string, token = `$(cat ${folder}/token)`) =>
    cluster.ask(
      ...['exec', 'client', '--', 'sh', '-c'],
      `curl -sS --cacert ${folder}/ca.crt -H "Authorization: Bearer ${token}" https://kubernetes.default.svc${path}`,
    );
  const review = JSON.parse(await ask('/api/v1/namespaces/default/pods/client'));
  assert.deepEqual([review.kind, review.metadata.name], ['Pod', 'client']);
  assert.equal(await cluster.ask('exec', 'client', '--', 'cat', `${folder}/namespace`), 'default');
  assert.equal(JSON.parse(await ask('/api/v1/namespaces', 'forged')).code, 401);
  const authority = await cluster.ask(
    'get',
    'configmap',
    'kube-root-ca.crt',
    '-o',
    'jsonpath={.data.ca\\.crt}',
  );
  assert.equal(await cluster.ask('exec', 'client', '--', 'cat', `${folder}/ca.crt`), authority);
});
