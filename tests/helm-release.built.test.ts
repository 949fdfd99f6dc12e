import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { startApi, type TestApi } from '../src/apiserver/testing/api.ts';
import { kubeconfigJson } from '../src/kube/kubeconfig-text.ts';

/** The program helm, for instance of `go install helm.sh/helm/v3/cmd/helm@v3.16.4`. */
const helm = process.env['HELM'] ?? '';
const CHART = join(import.meta.dirname, '..', 'deploy', 'helm', 'fairlead');
const SERVICES = '/api/v1/namespaces/kube-system/services';
const DAEMON_SET = '/apis/apps/v1/namespaces/kube-system/daemonsets/fairlead';

/** As kubeadm installs it. */
const COREDNS = {
  metadata: { name: 'kube-dns', namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } },
  spec: {
    clusterIP: '10.96.0.10',
    selector: { 'k8s-app': 'kube-dns' },
    ports: [{ name: 'dns', port: 53, protocol: 'UDP' }],
  },
};

interface Ended {
  readonly status: number;
  readonly error: string;
}

describe('a release of the chart', { skip: helm === '' ? 'HELM does not name the program' : false }, () => {
  let api: TestApi;
  let folder: string;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'flt-helm-'));
    api = startApi();
    const [port] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
    const admin = api.authority.issue({
      commonName: 'admin',
      organizations: ['system:masters'],
      usage: 'client',
    });
    const server = `https://127.0.0.1:${port}`;
    writeFileSync(
      join(folder, 'kubeconfig'),
      kubeconfigJson({ name: 'test', server, ca: api.authority.cert, ...admin }),
      { mode: 0o600 },
    );
  });
  afterEach(async () => {
    await run('uninstall', 'fairlead');
    await api.request('DELETE', `${SERVICES}/kube-dns`);
  });
  after(async () => {
    await api?.server.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const run = (...words: readonly string[]) =>
    new Promise<Ended>((resolve) => {
      const env = { ...process.env, KUBECONFIG: join(folder, 'kubeconfig'), HOME: folder };
      execFile(helm, [...words, '--namespace', 'kube-system'], { env }, (error, _, text) =>
        resolve({ status: error ? Number(error.code) : 0, error: text }),
      );
    });
  const perform = async (verb: 'install' | 'upgrade', ...values: readonly string[]) => {
    const all = ['apiServer=https://192.0.2.1:6443', 'image=fairlead:1', ...values];
    return await run(verb, 'fairlead', CHART, ...all.flatMap((one) => ['--set', one]));
  };
  const succeed = async (...words: Parameters<typeof perform>) => {
    const { status, error } = await perform(...words);
    assert.equal(status, 0, error);
  };
  const templateOf = async () => (await api.request('GET', DAEMON_SET)).body.spec.template;

  test('an upgrade that changes the configuration replaces the agents; one that does not, does not', async () => {
    await succeed('install');
    const first = await templateOf();
    await succeed('upgrade', 'mode=ebpf');
    const second = await templateOf();
    assert.notDeepEqual(second, first);
    await succeed(
      'upgrade',
      'mode=ebpf',
      'labels.team=net',
      'agent.updateStrategy.rollingUpdate.maxUnavailable=1',
    );
    assert.deepEqual(await templateOf(), second);
  });

  test('the DNS Service of another program is kept, with its selector, and stays after an uninstallation', async () => {
    assert.equal((await api.request('POST', SERVICES, COREDNS)).status, 201);
    await succeed('install', 'parts=proxy-dns');
    await succeed('upgrade', 'parts=all');
    assert.equal((await run('uninstall', 'fairlead')).status, 0);
    const { status, body } = await api.request('GET', `${SERVICES}/kube-dns`);
    assert.equal(status, 200);
    assert.deepEqual(body.spec.selector, COREDNS.spec.selector);
    assert.equal(body.metadata.labels['app.kubernetes.io/managed-by'], undefined);
  });

  test('an address that is not the one of the DNS Service is refused', async () => {
    await api.request('POST', SERVICES, COREDNS);
    const { status, error } = await perform('install', 'parts=proxy-dns', 'dnsAddress=10.96.0.53');
    assert.notEqual(status, 0);
    assert.match(
      error,
      /dnsAddress: the Service kube-system\/kube-dns of this cluster has 10\.96\.0\.10, not 10\.96\.0\.53/,
    );
  });

  test('without another one, the release has the Service, through upgrades, and removes it', async () => {
    await succeed('install', 'parts=proxy-dns');
    await succeed('upgrade', 'parts=proxy-dns', 'mode=ebpf');
    const { body } = await api.request('GET', `${SERVICES}/kube-dns`);
    assert.equal(body.spec.clusterIP, '10.96.0.10');
    assert.equal((await run('uninstall', 'fairlead')).status, 0);
    assert.equal((await api.request('GET', `${SERVICES}/kube-dns`)).status, 404);
  });
});
