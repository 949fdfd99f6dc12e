import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { cidrContains, parseCidr } from '../lib/address.ts';
import { CORE, service, startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const merge = { 'content-type': 'application/merge-patch+json' };
const create = (name: string, spec: object = {}) => request('POST', `${CORE}/services`, service(name, spec));
const patch = (name: string, spec: object) => request('PATCH', `${CORE}/services/${name}`, { spec }, merge);
const range = parseCidr('10.96.0.0/16');

test('the Service kubernetes has the first address and forwards to the server', async () => {
  const { body } = await request('GET', `${CORE}/services/kubernetes`);
  assert.equal(body.spec.clusterIP, '10.96.0.1');
  const slice = await request(
    'GET',
    '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes',
  );
  assert.deepEqual(slice.body.endpoints[0].addresses, ['192.0.2.1']);
  assert.equal(slice.body.ports[0].port, 6443);
});

test('a Service gets an address of the dynamic band and its families', async () => {
  const { body } = await create('plain');
  assert.ok(range && cidrContains(range, body.spec.clusterIP));
  const [, , third = 0, fourth = 0] = body.spec.clusterIP.split('.').map(Number);
  assert.ok(third * 256 + fourth > 256, `${body.spec.clusterIP} is outside the static band`);
  assert.deepEqual(body.spec.clusterIPs, [body.spec.clusterIP]);
  assert.deepEqual(body.spec.ipFamilies, ['IPv4']);
  assert.equal(body.spec.ipFamilyPolicy, 'SingleStack');
  assert.equal(body.spec.ports[0].targetPort, 80);
});

const families: readonly [what: string, spec: object, ips: readonly RegExp[], policy: string][] = [
  ['PreferDualStack', { ipFamilyPolicy: 'PreferDualStack' }, [/^10\.96\./, /^fd00:96::/], 'PreferDualStack'],
  [
    'RequireDualStack',
    { ipFamilyPolicy: 'RequireDualStack' },
    [/^10\.96\./, /^fd00:96::/],
    'RequireDualStack',
  ],
  ['IPv6 alone', { ipFamilies: ['IPv6'] }, [/^fd00:96::/], 'SingleStack'],
  [
    'IPv6 first',
    { ipFamilies: ['IPv6', 'IPv4'], ipFamilyPolicy: 'PreferDualStack' },
    [/^fd00:96::/, /^10\.96\./],
    'PreferDualStack',
  ],
  ['a given IPv6 address', { clusterIP: 'fd00:96::17' }, [/^fd00:96::17$/], 'SingleStack'],
  ['headless', { clusterIP: 'None' }, [/^None$/], 'SingleStack'],
];
for (const [what, spec, ips, policy] of families) {
  test(`addresses for ${what}`, async () => {
    const name = `family-${what.toLowerCase().replaceAll(' ', '-')}`;
    const { status, body } = await create(name, spec);
    assert.equal(status, 201, JSON.stringify(body));
    assert.equal(body.spec.clusterIPs.length, ips.length);
    for (const [i, ip] of ips.entries()) assert.match(body.spec.clusterIPs[i], ip);
    assert.equal(body.spec.ipFamilyPolicy, policy);
  });
}

test('a Service becomes dual-stack and single-stack again', async () => {
  const { body: before } = await create('stacked');
  const { body: dual } = await patch('stacked', { ipFamilyPolicy: 'PreferDualStack' });
  assert.equal(dual.spec.clusterIPs.length, 2);
  assert.equal(dual.spec.clusterIP, before.spec.clusterIP);
  const { body: single } = await patch('stacked', { ipFamilyPolicy: 'SingleStack' });
  assert.deepEqual(single.spec.clusterIPs, [before.spec.clusterIP]);
  assert.deepEqual(single.spec.ipFamilies, ['IPv4']);
});

for (const [what, spec, message] of [
  ['the second family', { ipFamilies: ['IPv4'] }, /must be 'SingleStack' to release the secondary IP family/],
  ['the second address', (ips: string[]) => ({ clusterIPs: ips.slice(0, 1) }), /the secondary cluster IP/],
] as const) {
  test(`an update that leaves out ${what} without the policy is refused`, async () => {
    const name = `released-${what.replaceAll(' ', '-')}`;
    const { body: before } = await create(name, { ipFamilyPolicy: 'PreferDualStack' });
    const change = typeof spec === 'function' ? spec(before.spec.clusterIPs) : spec;
    const { status, body } = await patch(name, change);
    assert.equal(status, 422);
    assert.match(body.message, message);
    const { status: accepted, body: single } = await patch(name, {
      ...change,
      ipFamilyPolicy: 'SingleStack',
    });
    assert.equal(accepted, 200, JSON.stringify(single));
    assert.deepEqual(single.spec.clusterIPs, before.spec.clusterIPs.slice(0, 1));
  });
}

const refusals: readonly [what: string, spec: object, message: RegExp][] = [
  [
    'an address in use',
    { clusterIP: '10.96.0.1' },
    /failed to allocate IP 10\.96\.0\.1: provided IP is already allocated/,
  ],
  [
    'an address outside the range',
    { clusterIP: '10.97.0.1' },
    /the provided network does not match the current range/,
  ],
  [
    'several addresses without the first one',
    { clusterIPs: ['10.96.0.77'] },
    /spec\.clusterIPs: Invalid value: \["10\.96\.0\.77"\]: must be empty when `clusterIP` is not specified/,
  ],
  [
    'several addresses with another first one',
    { clusterIP: '10.96.0.76', clusterIPs: ['10.96.0.77'] },
    /spec\.clusterIPs: Invalid value: \["10\.96\.0\.77"\]: first value must match `clusterIP`/,
  ],
  [
    'a node port on a ClusterIP Service',
    { ports: [{ port: 80, nodePort: 30001 }] },
    /may not be used when `type` is 'ClusterIP'/,
  ],
  [
    'a node port out of range',
    { type: 'NodePort', ports: [{ port: 80, nodePort: 80 }] },
    /provided port is not in the valid range\. The range of valid ports is 30000-32767/,
  ],
  ['no ports', { ports: [] }, /spec\.ports: Required value/],
  [
    'a port out of range',
    { ports: [{ port: 65536 }] },
    /spec\.ports\[0\]\.port: Invalid value: 65536: must be between 1 and 65535, inclusive/,
  ],
  [
    'two ports without names',
    { ports: [{ port: 1 }, { port: 2 }] },
    /spec\.ports\[0\]\.name: Required value/,
  ],
  [
    'a duplicate port',
    {
      ports: [
        { name: 'a', port: 1 },
        { name: 'b', port: 1 },
      ],
    },
    /spec\.ports\[1\]: Duplicate value/,
  ],
  [
    'an unknown type',
    { type: 'Magic' },
    /spec\.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"/,
  ],
  [
    'a headless NodePort',
    { type: 'NodePort', clusterIP: 'None' },
    /may not be set to 'None' for NodePort services/,
  ],
  ['an unknown family', { ipFamilies: ['IPv5'] }, /spec\.ipFamilies\[0\]/],
  [
    'externalTrafficPolicy inside the cluster',
    { externalTrafficPolicy: 'Local' },
    /may only be set for externally-accessible services/,
  ],
];
for (const [what, spec, message] of refusals) {
  test(`refuses ${what}`, async () => {
    const { status, body } = await create('refused', spec);
    assert.equal(status, 422, JSON.stringify(body));
    assert.match(body.message, message);
    assert.equal((await request('GET', `${CORE}/services/refused`)).status, 404);
  });
}

test('the allocations of a refused Service are released', async () => {
  const bad = await create('half', {
    type: 'NodePort',
    clusterIP: '10.96.9.9',
    ports: [{ port: 80, nodePort: 1 }],
  });
  assert.equal(bad.status, 422);
  const good = await create('whole', { clusterIP: '10.96.9.9' });
  assert.equal(good.status, 201, JSON.stringify(good.body));
});

test('an address is immutable while the type requires it', async () => {
  await create('kept');
  const { status, body } = await patch('kept', { clusterIP: '10.96.0.200' });
  assert.equal(status, 422);
  assert.match(body.message, /spec\.clusterIPs\[0\]: Invalid value: .*: may not change once set/);
});

test('an update that omits allocated fields preserves them', async () => {
  const { body: before } = await create('replaced', { type: 'NodePort' });
  const { body: after } = await request(
    'PUT',
    `${CORE}/services/replaced`,
    service('replaced', { type: 'NodePort' }),
  );
  assert.equal(after.spec.clusterIP, before.spec.clusterIP);
  assert.equal(after.spec.ports[0].nodePort, before.spec.ports[0].nodePort);
  assert.equal(after.metadata.resourceVersion, before.metadata.resourceVersion);
});

test('changes of type allocate and release the fields of each type', async () => {
  const { body: first } = await create('changing', {
    type: 'NodePort',
    ports: [{ port: 80, nodePort: 30555 }],
  });
  const { body: inside } = await patch('changing', { type: 'ClusterIP' });
  assert.equal(inside.spec.ports[0].nodePort, undefined);
  assert.equal(inside.spec.externalTrafficPolicy, undefined);
  assert.equal(inside.spec.clusterIP, first.spec.clusterIP);
  const reuse = await create('reuser', { type: 'NodePort', ports: [{ port: 80, nodePort: 30555 }] });
  assert.equal(reuse.status, 201, 'the node port is free again');
  const { body: outside, status } = await patch('changing', {
    type: 'ExternalName',
    externalName: 'example.com',
  });
  assert.equal(status, 200, JSON.stringify(outside));
  assert.equal(outside.spec.clusterIP, undefined);
  const taken = await create('heir', { clusterIP: first.spec.clusterIP });
  assert.equal(taken.status, 201, 'the address is free again');
  const { body: back } = await patch('changing', { type: 'LoadBalancer', externalTrafficPolicy: 'Local' });
  assert.ok(back.spec.clusterIP);
  assert.ok(back.spec.ports[0].nodePort >= 30000);
  assert.ok(back.spec.healthCheckNodePort >= 30000);
  assert.equal(back.spec.allocateLoadBalancerNodePorts, true);
  const { body: plain } = await patch('changing', { type: 'ClusterIP' });
  assert.equal(plain.spec.healthCheckNodePort, undefined);
  assert.equal(plain.spec.allocateLoadBalancerNodePorts, undefined);
});

test('a node port in use is refused for every protocol; one Service may use it for two', async () => {
  const both = {
    type: 'NodePort',
    ports: [
      { name: 't', port: 53, protocol: 'TCP' },
      { name: 'u', port: 53, protocol: 'UDP' },
    ],
  };
  const { body } = await create('dns', both);
  assert.equal(body.spec.ports[0].nodePort, body.spec.ports[1].nodePort);
  const clash = {
    type: 'NodePort',
    ports: [{ port: 1, protocol: 'UDP', nodePort: body.spec.ports[0].nodePort }],
  };
  const refused = await create('clash', clash);
  assert.equal(refused.status, 422);
  assert.match(
    refused.body.message,
    /spec\.ports\[0\]\.nodePort: Invalid value: \d+: provided port is already allocated/,
  );
});

test('address and port of a deleted Service are free', async () => {
  const spec = { type: 'NodePort', clusterIP: '10.96.7.7', ports: [{ port: 80, nodePort: 30777 }] };
  assert.equal((await create('brief', spec)).status, 201);
  assert.equal((await request('DELETE', `${CORE}/services/brief`)).status, 200);
  assert.equal((await create('brief', spec)).status, 201);
});

test('concurrent writers get different addresses and ports', async () => {
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, i) => create(`many-${i}`, { type: 'NodePort' })),
  );
  const addresses = new Set(answers.map(({ body }) => body.spec.clusterIP));
  const ports = new Set(answers.map(({ body }) => body.spec.ports[0].nodePort));
  assert.equal(addresses.size, 200);
  assert.equal(ports.size, 200);
});

test('a full range is reported', async () => {
  const small = startApi({ serviceCidrs: ['10.0.0.0/29'], nodePorts: { first: 30000, last: 30000 } });
  try {
    const answers = [];
    for (let i = 0; i < 6; i++)
      answers.push(await small.request('POST', `${CORE}/services`, service(`s${i}`)));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 201, 201, 201, 500],
    );
    assert.match(answers[5]?.body.message, /failed to allocate a serviceIP for Service "s5": range is full/);
  } finally {
    await small.server.close();
  }
});

test('allocations are restored after a restart', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-services-'));
  try {
    const dataFile = join(folder, 'data.db');
    const first = startApi({ dataFile });
    const spec = { type: 'NodePort', clusterIP: '10.96.3.3', ports: [{ port: 80, nodePort: 30333 }] };
    await first.request('POST', `${CORE}/services`, service('lasting', spec));
    await first.server.close();
    const second = startApi({ dataFile });
    const { status } = await second.request(
      'POST',
      `${CORE}/services`,
      service('other', { clusterIP: '10.96.3.3' }),
    );
    assert.equal(status, 422);
    assert.equal(
      (await second.request('GET', `${CORE}/services/lasting`)).body.spec.ports[0].nodePort,
      30333,
    );
    await second.server.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a dry run answers stand-ins for the address and ports, and takes none', async () => {
  const spec = {
    type: 'LoadBalancer',
    externalTrafficPolicy: 'Local',
    ports: [{ port: 80, nodePort: 30010 }],
  };
  const body = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'tried' }, spec };
  const { body: tried } = await request('POST', `${CORE}/services?dryRun=All`, body);
  assert.deepEqual([tried.spec.clusterIP, tried.spec.healthCheckNodePort], ['10.96.0.0', 30011]);
  const taken = await create('taker', { type: 'NodePort', ports: [{ port: 80, nodePort: 30010 }] });
  assert.equal(taken.status, 201);
});
