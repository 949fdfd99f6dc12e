import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { buildImage, ociArchive } from '../src/runtime/images/testing/image-builder.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { programFiles } from './testing/program-files.ts';

// Nodes that are drained and tainted while their pods serve, and the information that a pod has about its
// cluster.

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '-f', HELLO]);
});
after(() => cluster?.down());

const serving = async () => (await cluster.pods('app=hello')).map(({ node }) => node);
const settled = () => cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
/** Returns a node with a server, but without the client, which sends requests continuously. */
async function nodeToEmpty(): Promise<string> {
  const [client] = await cluster.pods('app=client');
  const node = (await serving()).find((name) => name !== client?.node);
  assert.ok(node);
  return node;
}

test('drain moves pods elsewhere, and their Service answers throughout', async () => {
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

test('a PodDisruptionBudget limits evictions and reports how many it allows', async () => {
  await settled();
  await cluster.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: hello}
spec: {minAvailable: 3, selector: {matchLabels: {app: hello}}}
`);
  const allowed = () => cluster.ask('get', 'pdb', 'hello', '-o', 'jsonpath={.status.disruptionsAllowed}');
  await eventually(allowed, (text) => text === '0');
  const node = await nodeToEmpty();
  const drained = await cluster.kubectl('drain', node, '--ignore-daemonsets', '--timeout=2s');
  assert.notEqual(drained.status, 0);
  assert.match(drained.error, /Cannot evict pod as it would violate the pod's disruption budget\./);
  assert.equal((await serving()).length, 3);
  await cluster.ask('patch', 'pdb', 'hello', '--type=merge', '-p', '{"spec":{"minAvailable":2}}');
  await eventually(allowed, (text) => text === '1');
  await cluster.ask('drain', node, '--ignore-daemonsets', '--timeout=120s');
  await cluster.ask('delete', 'pdb', 'hello');
  await cluster.ask('uncordon', node);
  await settled();
});

test('images: loaded from an archive, listed, used by every node, removed when no pod uses them', async () => {
  const image = buildImage([['/bin/sh', '/bin/sleep'].flatMap(programFiles)], {
    Entrypoint: ['/bin/sh', '-c', 'echo from the image; exec sleep 1000'],
  });
  const file = join(cluster.stateRoot, 'greeter.tar');
  const name = 'example.com/greeter:1';
  writeFileSync(file, ociArchive([{ descriptor: image.manifest, name }], image.blobs));
  const [loaded] = JSON.parse((await cluster.fairlead('image', 'load', file, '-o', 'json')).out);
  assert.deepEqual([loaded.name, loaded.digest, loaded.source], [name, image.manifest.digest, 'archive']);
  assert.match(
    (await cluster.fairlead('image', 'ls')).out,
    /^NAME +DIGEST.*\nexample\.com\/greeter:1 +sha256:/,
  );
  await cluster.ask('create', 'deployment', 'greeter', `--image=${name}`, '--replicas=3');
  await cluster.ask('rollout', 'status', 'deployment/greeter', '--timeout=120s');
  const pods = await cluster.pods('app=greeter');
  assert.equal(new Set(pods.map(({ node }) => node)).size, 3);
  for (const pod of pods) assert.equal(await cluster.ask('logs', pod.name), 'from the image\n');
  const used = await cluster.fairlead('image', 'rm', name);
  assert.match(used.error, /in use by a container/);
  await cluster.ask('delete', 'deployment', 'greeter', '--grace-period=0', '--force', '--wait');
  await eventually(
    () => cluster.fairlead('image', 'rm', name),
    ({ status }) => status === 0,
    60_000,
  );
  assert.deepEqual(JSON.parse((await cluster.fairlead('image', 'ls', '-o', 'json')).out), []);
  for (const [words, error] of [
    [['load', join(cluster.stateRoot, 'none.tar')], /no such file/],
    [['rm', name], /no such image/],
    [['move', name], /ACTION is one of load, pull, ls, rm, not "move"/],
    [['load'], /missing FILE/],
  ] as const) {
    const failed = await cluster.fairlead('image', ...words);
    assert.notEqual(failed.status, 0);
    assert.match(failed.error, error);
  }
});

test('a pod may make the API requests that RBAC allows its service account', async () => {
  const folder = '/var/run/secrets/kubernetes.io/serviceaccount';
  const ask = (path: string, token = `$(cat ${folder}/token)`) =>
    cluster.ask(
      ...['exec', 'client', '--', 'sh', '-c'],
      `curl -sS --cacert ${folder}/ca.crt -H "Authorization: Bearer ${token}" https://kubernetes.default.svc${path}`,
    );
  const own = '/api/v1/namespaces/default/pods/client';
  const refused = JSON.parse(await ask(own));
  assert.equal(refused.code, 403);
  assert.match(refused.message, /User "system:serviceaccount:default:default" cannot get resource "pods"/);
  await cluster.ask(
    'create',
    'rolebinding',
    'client',
    '--clusterrole=view',
    '--serviceaccount=default:default',
  );
  const pod = JSON.parse(await ask(own));
  assert.deepEqual([pod.kind, pod.metadata.name], ['Pod', 'client']);
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

// The last one: the client may be among the evicted pods.
test('a taint NoExecute ends pods that do not tolerate it, at once or after tolerationSeconds', async () => {
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
  await cluster.ask('wait', '--for=condition=Ready', 'pod', '-l', 'app=tolerant', '--timeout=120s');
  await cluster.ask('taint', 'node', 'node-3', 'repairs=now:NoExecute');
  const names = async () => (await cluster.pods('app=tolerant')).map(({ name }) => name).sort();
  await eventually(names, (left) => !left.includes('none'), 60_000);
  await eventually(names, (left) => left.join() === 'always', 60_000);
  await settled();
  assert.ok(!(await serving()).includes('node-3'));
  await cluster.ask('taint', 'node', 'node-3', 'repairs-');
});
