import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { isProxyable } from '../kube/dial-check.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { CORE, configMap, pod, startApi } from './testing/api.ts';

const ADDRESSES: readonly [address: string, isAllowed: boolean][] = [
  ['10.244.0.1', true],
  ['192.168.1.1', true],
  ['fd00:10:244::5', true],
  ['2001:db8::1', true],
  ['100.64.0.1', true],
  ['127.0.0.1', false],
  ['127.255.255.254', false],
  ['0.0.0.0', false],
  ['0.1.2.3', false],
  ['169.254.169.254', false],
  ['224.0.0.1', false],
  ['239.255.255.255', false],
  ['255.255.255.255', false],
  ['::', false],
  ['::1', false],
  ['0:0:0:0:0:0:0:1', false],
  ['fe80::1', false],
  ['febf::1', false],
  ['ff02::1', false],
  ['::ffff:127.0.0.1', false],
  ['::ffff:7f00:1', false],
  ['::ffff:10.0.0.1', true],
  ['::127.0.0.1', false],
  ['64:ff9b::7f00:1', false],
  ['64:ff9b::169.254.169.254', false],
  ['2002:7f00:1::', false],
  ['2002:a9fe:a9fe::1', false],
  ['fd00:ec2::254', false],
  ['fd20:ce::254', false],
  ['100.100.100.200', false],
  ['168.63.129.16', false],
  ['localhost', false],
  ['127.1', false],
  ['2130706433', false],
  ['0x7f.0.0.1', false],
  ['fe80::1%eth0', false],
  ['', false],
];
for (const [address, isAllowed] of ADDRESSES) {
  test(`the API server ${isAllowed ? 'may' : 'must not'} connect to "${address}"`, () =>
    assert.equal(isProxyable(address), isAllowed));
}

// The node is at another address of the loopback than the secret, and the only one of it that is allowed.
const NODE = '127.0.0.2';
const api = startApi({ mayDial: (address) => address === NODE || isProxyable(address) });
const { request } = api;
const own = api.authority.issue({ commonName: 'n1', names: ['localhost'], usage: 'server' });
const caBundle = Buffer.from(api.authority.cert).toString('base64');
/** Where the API server asked the node to connect. */
const connected: string[] = [];
/** The requests that a server on the loopback got. */
const leaked: string[] = [];
const node = createServer(own, (asked, response) => {
  leaked.push(asked.url ?? '');
  response.end('{}');
});
const secret = createServer(own, (asked, response) => {
  leaked.push(asked.url ?? '');
  response.end('{}');
});
let port = 0;

const MERGE = { 'content-type': 'application/merge-patch+json' };
const patchStatus = (path: string, status: object) => request('PATCH', `${path}/status`, { status }, MERGE);

before(async () => {
  node.on('connect', (asked, socket) => {
    connected.push(asked.url ?? '');
    socket.end('HTTP/1.1 502 no\r\n\r\n');
  });
  node.listen(0, NODE);
  secret.listen(0, '127.0.0.1');
  await Promise.all([once(node, 'listening'), once(secret, 'listening')]);
  ({ port } = secret.address() as AddressInfo);
  await request('POST', '/api/v1/nodes', { metadata: { name: 'n1' } });
  await patchStatus('/api/v1/nodes/n1', {
    addresses: [{ type: 'InternalIP', address: NODE }],
    daemonEndpoints: { kubeletEndpoint: { Port: (node.address() as AddressInfo).port } },
    conditions: [{ type: 'Ready', status: 'True' }],
  });
  await request('POST', '/api/v1/nodes', { metadata: { name: 'n2' } });
  await request('POST', `${CORE}/pods`, pod('web', { nodeName: 'n1' }));
  await request('POST', `${CORE}/pods`, pod('on-n2', { nodeName: 'n2' }));
  const external = { type: 'ExternalName', externalName: 'localhost', ports: [{ port }] };
  await request('POST', `${CORE}/services`, { metadata: { name: 'local' }, spec: external });
});
after(async () => {
  await api.server.close();
  for (const server of [node, secret]) {
    server.closeAllConnections();
    server.close();
  }
});

test('pods/proxy to an address of a status that is not of a pod', async () => {
  for (const ip of ['127.0.0.1', '169.254.169.254', '0.0.0.0', '::1', 'fe80::1']) {
    assert.equal((await patchStatus(`${CORE}/pods/web`, { podIP: ip, podIPs: [{ ip }] })).status, 200, ip);
    const { status, body } = await request('GET', `${CORE}/pods/web:${port}/proxy/`);
    assert.deepEqual([status, body.message], [400, 'address not allowed'], ip);
  }
  assert.deepEqual(connected, []);
});

test('requests to a node whose status names the loopback of the API server', async () => {
  for (const address of ['127.0.0.1', 'localhost', '::ffff:127.0.0.1']) {
    await patchStatus('/api/v1/nodes/n2', {
      addresses: [{ type: 'InternalIP', address }],
      daemonEndpoints: { kubeletEndpoint: { Port: port } },
    });
    for (const path of [
      '/api/v1/nodes/n2/proxy/pods',
      `/api/v1/nodes/n2:9/proxy/`,
      `${CORE}/pods/on-n2/log`,
      `${CORE}/pods/on-n2/exec?command=id&stdout=true`,
    ]) {
      const { status, body } = await request('GET', path);
      assert.ok(status === 400 || status === 502, `${address} ${path}: ${status}`);
      assert.match(body.message, /address not allowed/, `${address} ${path}`);
    }
  }
  assert.deepEqual([leaked, connected], [[], []]);
});

test('a webhook of a Service that names the loopback', async () => {
  const hooks = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';
  const rule = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] };
  await request('POST', hooks, {
    metadata: { name: 'hook' },
    webhooks: [
      {
        name: 'a.example.com',
        clientConfig: { service: { namespace: 'default', name: 'local', port }, caBundle },
        rules: [rule],
        sideEffects: 'None',
        admissionReviewVersions: ['v1'],
      },
    ],
  });
  const { body } = await request('POST', `${CORE}/configmaps`, configMap('a'));
  assert.match(body.message, /failed calling webhook "a\.example\.com".*: address not allowed$/);
  await request('DELETE', `${hooks}/hook`);
  assert.deepEqual(leaked, []);
});

test('an aggregated API whose Service names the loopback', async () => {
  const apis = '/apis/apiregistration.k8s.io/v1/apiservices';
  await request('POST', apis, {
    metadata: { name: 'v1.sea.example.com' },
    spec: {
      ...{ group: 'sea.example.com', version: 'v1', groupPriorityMinimum: 1000, versionPriority: 10 },
      insecureSkipTLSVerify: true,
      service: { namespace: 'default', name: 'local', port },
    },
  });
  const condition = async () =>
    (await request('GET', `${apis}/v1.sea.example.com`)).body.status?.conditions?.[0] ?? {};
  await eventually(async () => /address not allowed/.test((await condition())['message'] ?? ''));
  await request('DELETE', `${apis}/v1.sea.example.com`);
  assert.deepEqual(leaked, []);
});
