import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type IdentityOptions, joinCluster } from '../src/agent/identity/node-identity.ts';
import { startApi, type TestApi } from '../src/apiserver/testing/api.ts';
import { startControllers } from '../src/controllers/start.ts';
import { createClient, hasReason } from '../src/kube/client.ts';
import { readKubeconfig } from '../src/kube/kubeconfig.ts';
import { httpTransport } from '../src/kube/transport.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';

/** A machine joins the embedded control plane as it joins a real one. */

const RBAC = 'rbac.authorization.k8s.io';
const CSR = 'system:certificates.k8s.io:certificatesigningrequests';
const ending = new AbortController();
const { signal } = ending;
let api: TestApi;
let folder: string;
let options: IdentityOptions;

async function create(path: string, object: object): Promise<void> {
  const { status, body } = await api.request('POST', path, object);
  assert.equal(status, 201, JSON.stringify(body));
}

describe('the embedded control plane', () => {
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'flt-join-'));
    api = startApi();
    const [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
    const { ready } = startControllers({
      ...{ client: createClient(api.server.transport, 'test'), clock: systemClock, random: Math.random },
      ...{ logger: silentLogger, signal },
      options: { clusterCidrs: [], certificateSigner: api.authority.sign },
    });
    await ready;
    await create('/api/v1/namespaces/kube-system/secrets', {
      metadata: { name: 'bootstrap-token-abcdef' },
      type: 'bootstrap.kubernetes.io/token',
      stringData: {
        'token-id': 'abcdef',
        'token-secret': '0123456789abcdef',
        'usage-bootstrap-authentication': 'true',
      },
    });
    for (const name of ['system:node-bootstrapper', `${CSR}:nodeclient`]) {
      await create(`/apis/${RBAC}/v1/clusterrolebindings`, {
        metadata: { name: `test-${name}` },
        roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name },
        subjects: [{ apiGroup: RBAC, kind: 'Group', name: 'system:bootstrappers' }],
      });
    }
    const bootstrapKubeconfig = join(folder, 'bootstrap.conf');
    writeFileSync(join(folder, 'ca.crt'), api.authority.cert);
    writeFileSync(
      bootstrapKubeconfig,
      `{clusters: [{name: a, cluster: {server: "https://127.0.0.1:${port}", certificate-authority: ca.crt}}], users: [{name: a, user: {token: abcdef.0123456789abcdef}}], contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}`,
    );
    options = {
      ...{ nodeName: 'n1', kubeconfig: join(folder, 'kubeconfig'), bootstrapKubeconfig, stateDir: folder },
      connect: (file) => httpTransport(readKubeconfig(file)),
      ...{ userAgent: 'test', clock: systemClock, random: Math.random, logger: silentLogger, signal },
    };
  });
  after(async () => {
    ending.abort();
    await api?.server.close();
    rmSync(folder, { recursive: true, force: true });
  });

  test('signs the certificate of a machine with a bootstrap token, which is that Node then', async () => {
    await joinCluster(options);
    const transport = options.connect(options.kubeconfig);
    const client = createClient(transport, 'test');
    try {
      await client.create(RESOURCES.nodes, { metadata: { name: 'n1' } });
      const own = await client.list(RESOURCES.nodes, { fieldSelector: 'metadata.name=n1' });
      assert.deepEqual(
        own.items.map(({ metadata }) => metadata?.name),
        ['n1'],
      );
      await assert.rejects(client.list(RESOURCES.secrets, { namespace: 'kube-system' }), (error) =>
        hasReason(error, 'Forbidden'),
      );
    } finally {
      transport.close();
    }
  });
});
