import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { dnsAddressOf } from '../src/cli/cluster-dns-address.ts';
import { RESOURCES, type Service } from '../src/kube/types.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane();
});
after(() => plane.close());

const dnsService = (clusterIP: string): Service => ({
  metadata: { namespace: 'kube-system', name: 'coredns', labels: { 'k8s-app': 'kube-dns' } },
  spec: { clusterIP, ports: [{ port: 53, protocol: 'UDP' }] },
});

test('the DNS address is the tenth one of the range of Services, or that of the Service kube-dns', async () => {
  const { client } = plane;
  for (const one of (await client.list(RESOURCES.services, { namespace: 'kube-system' })).items)
    await client.delete(RESOURCES.services, one.metadata?.name ?? '', { namespace: 'kube-system' });
  const range = await client.get(RESOURCES.serviceCidrs, 'kubernetes');
  const [network = ''] = range.spec?.cidrs ?? [];
  const third = network.split('.').slice(0, 3).join('.');
  assert.equal(await dnsAddressOf(client), `${third}.10`);
  await client.create(RESOURCES.services, dnsService(`${third}.53`));
  assert.equal(await dnsAddressOf(client), `${third}.53`);
});

test('without a cluster, manifests that serve DNS are refused with the option; others are printed', async () => {
  const launcher = fileURLToPath(new URL('../fairlead', import.meta.url));
  const print = (...words: string[]) =>
    new Promise<{ code: number; out: string; err: string }>((resolve) => {
      const env = { ...process.env, KUBECONFIG: '/nonexistent', HOME: '/nonexistent' };
      execFile(
        launcher,
        ['manifests', '--api-server', 'https://192.0.2.1', ...words],
        { env },
        (error, out, err) => resolve({ code: error ? Number(error.code) : 0, out, err }),
      );
    });
  const refused = await print('--for', 'all');
  assert.deepEqual([refused.code === 0, refused.out], [false, '']);
  assert.match(refused.err, /--dns-address ADDRESS/);
  const given = await print('--for', 'all', '--dns-address', '10.43.0.10');
  assert.match(given.out, /10\.43\.0\.10/);
  assert.equal((await print('--for', 'proxy')).code, 0);
});
