import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findDnsAddress } from '../src/cli/cluster-dns-address.ts';
import { RESOURCES, type Service } from '../src/kube/types.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane();
});
after(() => plane.close());

const dnsService = (name: string, clusterIP: string, selector?: Record<string, string>): Service => ({
  metadata: { namespace: 'kube-system', name, labels: { 'k8s-app': 'kube-dns' } },
  spec: { clusterIP, ports: [{ port: 53, protocol: 'UDP' }], ...(selector ? { selector } : {}) },
});

// An apply of our Service, which has no selector, over one that was applied with a selector would remove it.
test("a Service kube-dns of another name server is known by its selector, and not among the agents' objects", async () => {
  const { client } = plane;
  for (const one of (await client.list(RESOURCES.services, { namespace: 'kube-system' })).items)
    await client.delete(RESOURCES.services, one.metadata?.name ?? '', { namespace: 'kube-system' });
  const range = await client.get(RESOURCES.serviceCidrs, 'kubernetes');
  const address = `${range.spec?.cidrs?.[0]?.split('.').slice(0, 3).join('.')}.10`;
  for (const selector of [undefined, { 'k8s-app': 'kube-dns' }]) {
    await client.create(RESOURCES.services, dnsService('kube-dns', address, selector));
    const found = await findDnsAddress(client);
    assert.equal(found?.isServed, selector !== undefined);
    await client.delete(RESOURCES.services, 'kube-dns', { namespace: 'kube-system' });
  }
});

test('the DNS address is the tenth one of the range of Services, or that of the Service kube-dns', async () => {
  const { client } = plane;
  for (const one of (await client.list(RESOURCES.services, { namespace: 'kube-system' })).items)
    await client.delete(RESOURCES.services, one.metadata?.name ?? '', { namespace: 'kube-system' });
  const range = await client.get(RESOURCES.serviceCidrs, 'kubernetes');
  const [network = ''] = range.spec?.cidrs ?? [];
  const third = network.split('.').slice(0, 3).join('.');
  assert.equal((await findDnsAddress(client))?.address, `${third}.10`);
  await client.create(RESOURCES.services, dnsService('coredns', `${third}.53`));
  assert.equal((await findDnsAddress(client))?.address, `${third}.53`);
  await client.delete(RESOURCES.services, 'coredns', { namespace: 'kube-system' });
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
