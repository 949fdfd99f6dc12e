import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { createAuthority } from '../src/lib/pki.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, reserveCluster, runFairlead, startCluster } from './testing/cluster.ts';
import { machineChanges, machineState } from './testing/machine.ts';

/** A local cluster with the real etcd, kube-apiserver, kube-controller-manager and kube-scheduler. */

const assets = process.env['KUBEBUILDER_ASSETS'] ?? '';
const missing = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'].filter(
  (name) => assets === '' || !existsSync(join(assets, name)),
);
const skip = missing.length === 0 ? false : `KUBEBUILDER_ASSETS names no folder with ${missing.join(', ')}`;
const PROGRAMS = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'];

const serverVersion = async (cluster: Cluster) => {
  const { gitVersion, gitTreeState } = JSON.parse(await cluster.ask('get', '--raw', '/version')) as {
    gitVersion: string;
    gitTreeState?: string;
  };
  return { gitVersion, isUpstream: gitTreeState !== undefined && !gitVersion.includes('fairlead') };
};

/**
 * Waits until every pod answers at `url`; no request may fail meanwhile. Deployments count a pod as available once its
 * kubelet says so; the controller of EndpointSlices, another watcher, may add it later.
 */
async function answers(cluster: Cluster, place: string, url: string): Promise<void> {
  const names = (await cluster.pods('app=hello')).map(({ name }) => name).sort();
  await eventually(
    async () => {
      // So many that each of six endpoints, chosen at random, is chosen.
      const counts = await cluster.request(place, url, '--count', '200');
      assert.deepEqual(counts.failures, {});
      return Object.keys(counts.answers).sort();
    },
    (answered) => isDeepStrictEqual(answered, names),
  );
}

/** A program of the control plane that `status` shows as running. */
async function pidOf(cluster: Cluster, program: string): Promise<number> {
  const pid = cluster.supervision().processes[program]?.identity?.pid;
  assert.ok(pid, `${program} is not recorded`);
  return pid;
}

async function healthy(cluster: Cluster): Promise<void> {
  await eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
  );
}

const WEBHOOK = `
const { createServer } = require('node:https');
createServer({ cert: process.env.CERT, key: process.env.KEY }, (request, response) => {
  let body = '';
  request.on('data', (chunk) => { body += chunk; }).on('end', () => {
    const { request: { uid, object } } = JSON.parse(body);
    const allowed = object.data?.color !== 'red';
    const status = { message: 'red is not allowed' };
    response.end(JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response: { uid, allowed, status } }));
  });
}).listen(8443);
`;

function webhookObjects(): string {
  const authority = createAuthority('webhook', new Date());
  const { cert, key } = authority.issue({
    commonName: 'guard',
    names: ['guard.default.svc'],
    usage: 'server',
  });
  const objects = [
    {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'guard', labels: { app: 'guard' } },
      spec: {
        terminationGracePeriodSeconds: 0,
        containers: [
          {
            name: 'main',
            image: 'fairlead',
            command: ['/opt/fairlead/node', '-e', WEBHOOK],
            env: [
              { name: 'CERT', value: cert },
              { name: 'KEY', value: key },
            ],
            readinessProbe: { tcpSocket: { port: 8443 }, periodSeconds: 1 },
          },
        ],
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'guard' },
      spec: { selector: { app: 'guard' }, ports: [{ port: 443, targetPort: 8443 }] },
    },
    {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'ValidatingWebhookConfiguration',
      metadata: { name: 'guard' },
      webhooks: [
        {
          name: 'guard.example.com',
          clientConfig: {
            service: { name: 'guard', namespace: 'default' },
            caBundle: Buffer.from(authority.cert).toString('base64'),
          },
          rules: [
            { apiGroups: [''], apiVersions: ['v1'], resources: ['configmaps'], operations: ['CREATE'] },
          ],
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'default' } },
          admissionReviewVersions: ['v1'],
          sideEffects: 'None',
        },
      ],
    },
  ];
  return JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects });
}

const WRITER = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: fairlead, command: [sh, -c, echo written > /data/file && sleep infinity], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`;

describe('a cluster with a real control plane', { skip }, () => {
  const reserved = reserveCluster();
  let cluster: Cluster;
  let earlier: string[];

  before(async () => {
    earlier = machineState(reserved.name, reserved.stateRoot);
    cluster = await startCluster(['--control-plane', assets, '--nodes', '2', '-f', HELLO], reserved);
  });
  after(() => cluster?.down());

  test('is served by the real API server, and runs its programs', async () => {
    const { gitVersion, isUpstream } = await serverVersion(cluster);
    assert.ok(isUpstream, gitVersion);
    const status = await cluster.fairlead('status');
    assert.equal(status.status, 0, status.out);
    for (const program of PROGRAMS) assert.match(status.out, new RegExp(`^${program} +Running`, 'm'));
  });

  test('answers by name, by cluster IP and at node ports', async () => {
    const ip = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
    const node = cluster.state().nodes[1]?.addresses[0];
    await answers(cluster, 'client', 'http://hello');
    await answers(cluster, 'client', 'http://hello.default.svc.cluster.local');
    await answers(cluster, 'client', `http://${ip}`);
    await answers(cluster, 'node/node-1', `http://${ip}`);
    await answers(cluster, 'outside', `http://${node}:30080`);
  });

  test('assigns an address of a load balancer', async () => {
    await cluster.ask(
      'expose',
      'deployment',
      'hello',
      '--name=balanced',
      '--port=80',
      '--target-port=8080',
      '--type=LoadBalancer',
    );
    const address = await eventually(
      () => cluster.ask('get', 'service', 'balanced', '-o', 'jsonpath={.status.loadBalancer.ingress[0].ip}'),
      Boolean,
    );
    await eventually(
      () => cluster.request('outside', `http://${address}`),
      ({ failures }) => Object.keys(failures).length === 0,
    );
    await answers(cluster, 'outside', `http://${address}`);
    await cluster.ask('delete', 'service', 'balanced');
  });

  test('carries exec, logs, port-forward and proxies to pods', async () => {
    const [pod] = await cluster.pods('app=hello');
    assert.ok(pod);
    assert.equal((await cluster.ask('exec', 'client', '--', 'echo', 'from inside')).trim(), 'from inside');
    assert.match(await cluster.ask('logs', pod.name), /HTTP on port 8080/);
    const proxied = await cluster.ask(
      'get',
      '--raw',
      '/api/v1/namespaces/default/services/hello:http/proxy/hostname',
    );
    assert.match(proxied, /^hello-/);
    const forward = spawn('kubectl', ['port-forward', pod.name, ':8080'], {
      env: { ...process.env, KUBECONFIG: cluster.kubeconfig },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const [line] = (await once(createInterface(forward.stdout), 'line')) as [string];
      const port = /127\.0\.0\.1:([0-9]+)/.exec(line)?.[1];
      const answer = await fetch(`http://127.0.0.1:${port}/hostname`);
      assert.equal((await answer.text()).trim(), pod.name);
    } finally {
      forward.kill();
    }
  });

  test('calls an admission webhook in a pod', async () => {
    await cluster.apply(webhookObjects());
    await cluster.ask('wait', '--for=condition=Ready', 'pod/guard', '--timeout=60s');
    const create = (color: string) =>
      cluster.kubectl('create', 'configmap', color, `--from-literal=color=${color}`);
    const red = await eventually(
      () => create('red'),
      ({ error }) => error.includes('denied the request'),
    );
    assert.match(red.error, /admission webhook "guard.example.com" denied the request: red is not allowed/);
    assert.equal((await create('green')).status, 0);
    await cluster.ask('delete', 'validatingwebhookconfiguration/guard');
    await cluster.ask('delete', 'pod/guard', 'service/guard', 'configmap/green');
  });

  test('provides and removes volumes of the default class', async () => {
    await cluster.apply(WRITER);
    await cluster.ask('wait', '--for=condition=Ready', 'pod/writer', '--timeout=60s');
    const folder = join(cluster.stateRoot, cluster.name, 'volumes');
    assert.equal(readdirSync(folder).length, 1);
    await cluster.ask('delete', 'pod/writer', 'pvc/data');
    await eventually(() => readdirSync(folder).length === 0);
    await eventually(async () => (await cluster.ask('get', 'pv', '-o', 'name')) === '');
  });

  for (const program of PROGRAMS) {
    test(`restarts ${program} after kill -9, while Services answer`, async () => {
      const load = cluster.load('client', 'http://hello');
      const pid = await pidOf(cluster, program);
      process.kill(pid, 'SIGKILL');
      await eventually(() => (cluster.supervision().processes[program]?.restarts ?? 0) > 0);
      assert.notEqual(await pidOf(cluster, program), pid);
      await healthy(cluster);
      assert.deepEqual((await load.stop()).failures, {});
      await cluster.ask('rollout', 'restart', 'deployment/hello');
      await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=60s');
    });
  }

  test('adds and removes a node', async () => {
    const grown = await cluster.fairlead('up', '--detach', '--nodes', '3');
    assert.equal(grown.status, 0, grown.error);
    await cluster.ask('scale', 'deployment/hello', '--replicas=6');
    await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=60s');
    await eventually(async () => (await cluster.pods('app=hello')).some(({ node }) => node === 'node-3'));
    await answers(cluster, 'client', 'http://hello');
    const shrunk = await cluster.fairlead('up', '--detach', '--nodes', '2');
    assert.equal(shrunk.status, 0, shrunk.error);
    assert.equal((await cluster.ask('get', 'nodes', '-o', 'name')).trim(), 'node/node-1\nnode/node-2');
  });

  test('is started again after stop, and restored from a snapshot, with its objects', async () => {
    const uids = () =>
      cluster.ask('get', 'services,deployments,nodes', '-A', '-o', 'jsonpath={.items[*].metadata.uid}');
    const known = await uids();
    const archive = join(cluster.stateRoot, 'snapshot.tar.gz');
    const ends: readonly (readonly string[])[][] = [
      [['stop', '--name', cluster.name]],
      [
        ['snapshot', archive, '--name', cluster.name],
        ['down', '--name', cluster.name],
        ['restore', archive],
      ],
    ];
    for (const commands of ends) {
      for (const words of commands) {
        const { status, error } = await runFairlead(cluster.stateRoot, words);
        assert.equal(status, 0, error);
      }
      const up = await cluster.fairlead('up', '--detach');
      assert.equal(up.status, 0, up.error);
      assert.equal(await uids(), known);
      await answers(cluster, 'client', 'http://hello');
    }
  });

  test('refuses another control plane while it exists', async () => {
    const { status, error } = await cluster.fairlead('up', '--detach', '--control-plane', '/elsewhere');
    assert.equal(status, 1);
    assert.match(error, /--control-plane \/elsewhere: cluster \S+ runs with/);
  });

  test('leaves nothing behind after down', async () => {
    assert.equal((await cluster.fairlead('down')).status, 0);
    assert.deepEqual(machineChanges(earlier, machineState(reserved.name, reserved.stateRoot)), []);
  });
});

/** OpenShift's build of kube-apiserver mounts it in every pod; its kube-controller-manager creates it. */
const SERVICE_CA = {
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'openshift-service-ca.crt', namespace: 'default' },
  data: { 'service-ca.crt': '' },
};

describe('a cluster with etcd and kube-apiserver alone', { skip }, () => {
  test('is controlled and scheduled by the embedded controllers', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'fairlead-assets-'));
    const account = join(folder, 'account.json');
    writeFileSync(account, JSON.stringify(SERVICE_CA));
    for (const name of ['etcd', 'kube-apiserver']) symlinkSync(join(assets, name), join(folder, name));
    try {
      const cluster = await startCluster([
        '--control-plane',
        folder,
        '--nodes',
        '2',
        '-f',
        account,
        '-f',
        HELLO,
      ]);
      try {
        assert.ok((await serverVersion(cluster)).isUpstream);
        await answers(cluster, 'client', 'http://hello');
        await cluster.apply(WRITER);
        await cluster.ask('wait', '--for=condition=Ready', 'pod/writer', '--timeout=60s');
        await cluster.ask('rollout', 'restart', 'deployment/hello');
        await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=60s');
        // Namespaces end, and their objects with them.
        await cluster.ask('create', 'namespace', 'passing');
        await cluster.ask('-n', 'passing', 'create', 'deployment', 'one', '--image=fairlead');
        await cluster.ask('delete', 'namespace', 'passing', '--timeout=60s');
        assert.equal((await cluster.fairlead('status')).status, 0);
      } finally {
        await cluster.down();
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
