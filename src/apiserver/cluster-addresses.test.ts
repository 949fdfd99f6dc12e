import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { CORE, service, startApi, type TestApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const NETWORKING = '/apis/networking.k8s.io/v1';
const { request } = api;

const create = (name: string, spec: object = {}, of: TestApi = api) =>
  of.request('POST', `${CORE}/services`, service(name, spec));
const serviceCidr = (name: string, ...cidrs: string[]) => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'ServiceCIDR',
  metadata: { name },
  spec: { cidrs },
});
const addCidr = (name: string, ...cidrs: string[]) =>
  request('POST', `${NETWORKING}/servicecidrs`, serviceCidr(name, ...cidrs));
const setReady = (name: string, status: string) =>
  request(
    'PATCH',
    `${NETWORKING}/servicecidrs/${name}/status`,
    {
      status: {
        conditions: [
          { type: 'Ready', status, reason: '', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' },
        ],
      },
    },
    { 'content-type': 'application/merge-patch+json' },
  );
const address = (name: string) => request('GET', `${NETWORKING}/ipaddresses/${name}`);

test('every cluster address of a Service has an IPAddress object that names the Service', async () => {
  const { body } = await create('dual', { ipFamilyPolicy: 'RequireDualStack' });
  for (const [i, family] of ['IPv4', 'IPv6'].entries()) {
    const { status, body: object } = await address(body.spec.clusterIPs[i]);
    assert.equal(status, 200);
    assert.deepEqual(object.metadata.labels, {
      'ipaddress.kubernetes.io/ip-family': family,
      'ipaddress.kubernetes.io/managed-by': 'ipallocator.k8s.io',
    });
    assert.deepEqual(object.spec.parentRef, { resource: 'services', namespace: 'default', name: 'dual' });
  }
  assert.equal((await address('10.96.0.1')).body.spec.parentRef.name, 'kubernetes');
});

test('a deleted Service, or one that becomes ExternalName, releases its IPAddress', async () => {
  await create('gone', { clusterIP: '10.96.4.4' });
  assert.equal((await address('10.96.4.4')).status, 200);
  await request('DELETE', `${CORE}/services/gone`);
  assert.equal((await address('10.96.4.4')).status, 404);
  await create('renamed', { clusterIP: '10.96.4.5' });
  const spec = { type: 'ExternalName', externalName: 'example.com', clusterIP: null, clusterIPs: null };
  const headers = { 'content-type': 'application/merge-patch+json' };
  assert.equal((await request('PATCH', `${CORE}/services/renamed`, { spec }, headers)).status, 200);
  assert.equal((await address('10.96.4.5')).status, 404);
});

const REFUSED: readonly [name: string, ip: string, message: RegExp][] = [
  [
    'outside of every network',
    '10.90.0.7',
    /failed to allocate IP 10\.90\.0\.7: the provided network does not match the current range/,
  ],
  [
    'that is the network address',
    '10.96.0.0',
    /the provided IP \(10\.96\.0\.0\) is not in the valid range\. The range of valid IPs is 10\.96\.0\.0\/16/,
  ],
  ['that is the broadcast address', '10.96.255.255', /is not in the valid range/],
  ['of another Service', '10.96.0.1', /failed to allocate IP 10\.96\.0\.1: provided IP is already allocated/],
  ['of a manually created IPAddress', '10.96.8.8', /provided IP is already allocated/],
];
test('an address is refused if it is …', async (t) => {
  await request('POST', `${NETWORKING}/ipaddresses`, {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'IPAddress',
    metadata: { name: '10.96.8.8' },
    spec: { parentRef: { group: 'example.com', resource: 'gateways', namespace: 'default', name: 'g' } },
  });
  for (const [name, clusterIP, message] of REFUSED) {
    await t.test(name, async () => {
      const { status, body } = await create('refused', { clusterIP });
      assert.equal(status, 422);
      assert.match(body.message, message);
    });
  }
});

test('an additional ServiceCIDR provides addresses while it is ready and not being deleted', async () => {
  assert.equal((await addCidr('more', '10.90.0.0/28')).status, 201);
  assert.equal((await create('in-more', { clusterIP: '10.90.0.2' })).status, 201);
  await setReady('more', 'False');
  assert.equal((await create('not-ready', { clusterIP: '10.90.0.3' })).status, 422);
  await setReady('more', 'True');
  assert.equal((await create('ready-again', { clusterIP: '10.90.0.3' })).status, 201);
  const finalizers = ['networking.k8s.io/service-cidr-finalizer'];
  const headers = { 'content-type': 'application/merge-patch+json' };
  await request('PATCH', `${NETWORKING}/servicecidrs/more`, { metadata: { finalizers } }, headers);
  await request('DELETE', `${NETWORKING}/servicecidrs/more`);
  assert.equal((await create('too-late', { clusterIP: '10.90.0.4' })).status, 422);
});

test('when a network is full, the next one is used', async () => {
  const small = startApi({ serviceCidrs: ['10.0.0.0/30'], advertise: { addresses: [], port: 6443 } });
  try {
    for (const name of ['a', 'b']) assert.equal((await create(name, {}, small)).status, 201);
    assert.equal((await create('c', {}, small)).status, 500);
    await small.request('POST', `${NETWORKING}/servicecidrs`, serviceCidr('next', '10.1.0.0/30'));
    const { status, body } = await create('c', {}, small);
    assert.equal(status, 201);
    assert.match(body.spec.clusterIP, /^10\.1\.0\.[12]$/);
  } finally {
    await small.server.close();
  }
});

test('the IPAddress of a Service, and the default ServiceCIDR, are recreated after deletion', async () => {
  const { body } = await create('kept');
  await request('DELETE', `${NETWORKING}/ipaddresses/${body.spec.clusterIP}`);
  await request('DELETE', `${NETWORKING}/servicecidrs/kubernetes`);
  for (let i = 0; i < 1000 && (await address(body.spec.clusterIP)).status !== 200; i++) await setImmediate();
  assert.equal((await address(body.spec.clusterIP)).status, 200);
  assert.equal((await request('GET', `${NETWORKING}/servicecidrs/kubernetes`)).status, 200);
});

test('a dry run and a refused Service leave no IPAddress', async () => {
  const path = `${CORE}/services?dryRun=All`;
  assert.equal((await request('POST', path, service('dry', { clusterIP: '10.96.9.1' }))).status, 201);
  assert.equal((await address('10.96.9.1')).status, 404);
  const both = { clusterIP: '10.96.9.1', type: 'NodePort', ports: [{ port: 80, nodePort: 1 }] };
  assert.equal((await create('wrong', both)).status, 422);
  assert.equal((await create('right', { clusterIP: '10.96.9.1' })).status, 201);
});

test('a data file without IPAddress objects gets them, and those without a Service are removed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-addresses-'));
  try {
    const dataFile = join(folder, 'data.db');
    const first = startApi({ dataFile });
    await create('lasting', { clusterIP: '10.96.3.3' }, first);
    await first.server.close();
    const { DatabaseSync } = await import('node:sqlite');
    const database = new DatabaseSync(dataFile);
    database.exec("DELETE FROM object WHERE key = '/10.96.3.3'");
    database.exec("DELETE FROM object WHERE collection = 'services' AND key = 'default/kubernetes'");
    database.close();
    const second = startApi({ dataFile, advertise: { addresses: [], port: 6443 } });
    assert.equal((await second.request('GET', `${NETWORKING}/ipaddresses/10.96.3.3`)).status, 200);
    assert.equal((await second.request('GET', `${NETWORKING}/ipaddresses/10.96.0.1`)).status, 404);
    await second.server.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
