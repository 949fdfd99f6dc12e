import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { nodeProblems } from '../src/cli/status-problems.ts';
import { httpTransport } from '../src/kube/transport.ts';
import type { CertificateSigningRequest, Node } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type JoiningNode, startJoiningNode } from './testing/joining-node.ts';

/** A machine joins a real cluster as a kubelet does: bootstrap token, certificate signing request, own identity. */

const folder = process.env['KUBEBUILDER_ASSETS'] ?? '';
const missing = ['etcd', 'kube-apiserver', 'kube-controller-manager'].filter(
  (name) => folder === '' || !existsSync(join(folder, name)),
);
const skip = missing.length === 0 ? false : `KUBEBUILDER_ASSETS names no folder with ${missing.join(', ')}`;

const REQUESTS = '/apis/certificates.k8s.io/v1/certificatesigningrequests';
const RBAC = '/apis/rbac.authorization.k8s.io/v1';
const ACCOUNTS = '/api/v1/namespaces/default/serviceaccounts';
const PODS = '/api/v1/namespaces/default/pods';
/** Short, so that the client certificate is renewed while the test runs. */
const SIGNING_SECONDS = 140;

let node: JoiningNode;
const file = (name: string) => join(node.stateDir, 'state', name);
const clientFile = () => file('pki/kubelet-client-current.pem');
const serial = (path: string) => new X509Certificate(readFileSync(path)).serialNumber;
const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

async function ask(path: string) {
  const { status, body } = await node.api.request('GET', path);
  return status === 200 ? body : null;
}

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly message: string;
}

async function condition(type: string): Promise<Condition | undefined> {
  const found = (await ask('/api/v1/nodes/node-1'))?.status?.conditions as Condition[] | undefined;
  return found?.find((one) => one.type === type);
}

const untilReady = () =>
  eventually(
    () => condition('Ready'),
    (one) => one?.status === 'True',
  );
const untilRunning = (name: string) =>
  eventually(
    () => ask(`${PODS}/${name}`),
    (pod) => pod?.status.phase === 'Running',
  );

async function requests(signer: string): Promise<CertificateSigningRequest[]> {
  const { items } = (await ask(REQUESTS)) as { items: CertificateSigningRequest[] };
  return items.filter(({ spec }) => spec.signerName === `kubernetes.io/${signer}`);
}

async function createPod(name: string, command: string, more: object = {}): Promise<void> {
  const { status, body } = await node.api.request('POST', PODS, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name },
    spec: {
      nodeName: 'node-1',
      terminationGracePeriodSeconds: 1,
      containers: [{ name: 'main', image: 'host', command: ['sh', '-c', command], ...more }],
    },
  });
  assert.equal(status, 201, JSON.stringify(body));
}

async function approve(request: CertificateSigningRequest): Promise<void> {
  const conditions = [{ type: 'Approved', status: 'True', reason: 'Test', message: 'by an administrator' }];
  const { status, body } = await node.api.request('PUT', `${REQUESTS}/${request.metadata?.name}/approval`, {
    ...request,
    status: { conditions },
  });
  assert.equal(status, 200, JSON.stringify(body));
}

describe('a machine without a certificate', { skip }, () => {
  before(async () => {
    node = await startJoiningNode(folder, SIGNING_SECONDS);
  });
  after(() => node?.close());

  test('joins with a bootstrap token, and runs a pod that reads a Secret and a ConfigMap', async () => {
    for (const [plural, kind] of [
      ['secrets', 'Secret'],
      ['configmaps', 'ConfigMap'],
    ] as const) {
      const data = kind === 'Secret' ? { stringData: { a: 'secret' } } : { data: { b: 'plain' } };
      await node.api.request('POST', `/api/v1/namespaces/default/${plural}`, {
        ...{ apiVersion: 'v1', kind, metadata: { name: 'source' } },
        ...data,
      });
    }
    node.startAgent(
      { pods: { serverTLSBootstrap: true, clusterDNS: ['10.96.0.10'] } },
      ...['--bootstrap-kubeconfig', node.bootstrapKubeconfig],
    );
    await untilReady();
    await createPod(
      'first',
      'echo "$a $b $KUBERNETES_SERVICE_HOST"; grep nameserver /etc/resolv.conf; exec sleep 1000',
      {
        envFrom: [{ secretRef: { name: 'source' } }, { configMapRef: { name: 'source' } }],
      },
    );
    await untilRunning('first');
    assert.equal((await condition('NetworkUnavailable'))?.status, 'False');
    const [request] = await requests('kube-apiserver-client-kubelet');
    assert.match(request?.metadata?.name ?? '', /^node-csr-/);
    assert.equal(request?.spec.username, 'system:bootstrap:abcdef');
    assert.deepEqual(request?.spec.usages, ['digital signature', 'client auth']);
  });

  test('its key and its kubeconfig are readable by root only, and its first key is gone', () => {
    assert.deepEqual([clientFile(), file('kubeconfig')].map(mode), ['600', '600']);
    assert.equal(existsSync(file('pki/kubelet-client.key.tmp')), false);
  });

  test('once its serving certificate is approved, the API server reads the log of the pod', async () => {
    const [request] = await eventually(
      () => requests('kubelet-serving'),
      (all) => all.length > 0,
    );
    assert.ok(request);
    assert.equal(request.spec.username, 'system:node:node-1');
    await approve(request);
    await eventually(
      async () => (await node.api.request('GET', `${PODS}/first/log`)).body,
      (text) => text === 'secret plain 10.96.0.1\nnameserver 10.96.0.10\n',
    );
    const served = new X509Certificate(readFileSync(file('pki/kubelet-server-current.pem')));
    assert.equal(served.subjectAltName, 'DNS:node-1, IP Address:172.30.9.11');
  });

  test('the API server decides who may read its metrics by a token', async () => {
    await node.api.request('POST', ACCOUNTS, { metadata: { name: 'reader' } });
    const { body } = await node.api.request('POST', `${ACCOUNTS}/reader/token`, { spec: {} });
    const ca = node.api.authority.cert;
    const server = { server: 'https://172.30.9.11:10250', ca, token: body.status.token };
    const transport = httpTransport(server);
    const status = async (path: string) => (await transport({ method: 'GET', path, headers: {} })).status;
    assert.equal(await status('/metrics/resource'), 403);
    await node.api.request('POST', `${RBAC}/clusterroles`, {
      metadata: { name: 'metrics' },
      rules: [{ apiGroups: [''], resources: ['nodes/stats'], verbs: ['get'] }],
    });
    await node.bind('metrics', 'metrics', 'system:serviceaccounts:default');
    await eventually(
      () => status('/stats/summary'),
      (code) => code === 200,
    );
    assert.equal(await status('/configz'), 403);
    transport.close();
  });

  test('it starts again without the bootstrap token, and keeps its certificate and its pod', async () => {
    await node.stopAgent();
    rmSync(node.bootstrapKubeconfig);
    const before = await ask(`${PODS}/first`);
    const joined = (text: string) => node.log().filter(({ msg }) => msg.includes(text)).length;
    assert.equal(joined('joined the cluster'), 1);
    node.startAgent(
      { pods: { serverTLSBootstrap: true } },
      ...['--bootstrap-kubeconfig', node.bootstrapKubeconfig],
    );
    await eventually(() => joined('node is ready') === 2);
    assert.equal(joined('joined the cluster'), 1);
    const pod = await untilRunning('first');
    const id = (one: typeof pod) => one.status.containerStatuses[0].containerID;
    assert.equal(id(pod), id(before));
  });

  test('it renews its client certificate while it runs, and works on with the new one', async () => {
    const first = serial(clientFile());
    await eventually(
      () => serial(clientFile()),
      (now) => now !== first,
      SIGNING_SECONDS * 1000 + 300_000,
    );
    const own = (await requests('kube-apiserver-client-kubelet')).filter(
      ({ spec }) => spec.username === 'system:node:node-1',
    );
    assert.ok(own.length > 0);
    await createPod('second', 'exec sleep 1000');
    await untilRunning('second');
  });

  test('the API server forbade nothing that it did', () => {
    assert.deepEqual(node.refused(), []);
  });

  test('with routes to other nodes it says once which rule is missing, and works when it is added', async () => {
    await node.stopAgent();
    node.startAgent({ kubeconfig: file('kubeconfig'), network: { overlay: 'routes' } });
    await eventually(
      () => condition('NetworkUnavailable'),
      (one) => one?.status === 'True' && /not allowed to list nodes/.test(one.message),
    );
    await createPod('third', 'exec sleep 1000');
    await untilRunning('third');
    const said = node.log().filter(({ msg }) => msg.includes('not allowed to list nodes'));
    assert.equal(said.length, 1);
    await node.bind('test-proxier', 'system:node-proxier', 'system:nodes');
    await eventually(
      () => condition('NetworkUnavailable'),
      (one) => one?.status === 'False',
    );
    const refusedPaths = new Set(node.refused().map(({ uri }) => uri.split('?')[0]));
    assert.deepEqual([...refusedPaths].sort(), [
      '/api/v1/nodes',
      '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices',
    ]);
  });

  test('without write access to /proc/sys its condition says so, until it starts with it', async () => {
    await node.stopAgent();
    const fields = { kubeconfig: file('kubeconfig') };
    node.startAgent({ ...fields, hasReadOnlySysctls: true });
    await eventually(
      () => condition('NetworkUnavailable'),
      (one) =>
        one?.status === 'True' &&
        /^pods cannot be connected: \/proc\/sys is not writable \(EROFS\)/.test(one.message),
    );
    const found = (await ask('/api/v1/nodes/node-1')) as Node;
    assert.match(
      nodeProblems('node-1', found, { name: 'test' })
        .map(({ message }) => message)
        .join('\n'),
      /node-1: network: pods cannot be connected/,
    );
    await node.stopAgent();
    node.startAgent(fields);
    await eventually(
      () => condition('NetworkUnavailable'),
      (one) => one?.status === 'False',
    );
  });
});
