import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { type ClusterRequest, nodePrefixes, planCluster } from './plan.ts';
import { CLUSTER_REQUEST } from './testing/cluster-request.ts';

const uplink = { cidr: network('192.168.1.0/24'), by: 'route via eth0' };

function plan(changes: Partial<ClusterRequest>, occupied = [uplink]) {
  return planCluster({ ...CLUSTER_REQUEST, ...changes }, occupied, '0.0.0', new Date(0));
}

test('a default cluster uses the default networks', () => {
  const state = plan({});
  assert.deepEqual(state.podCidrs, ['10.244.0.0/16']);
  assert.deepEqual(state.serviceCidrs, ['10.96.0.0/16']);
  assert.deepEqual(state.dnsAddresses, ['10.96.0.10']);
  assert.deepEqual(
    state.nodes.map((node) => [node.name, ...node.addresses]),
    [
      ['node-1', '172.30.0.11'],
      ['node-2', '172.30.0.12'],
      ['node-3', '172.30.0.13'],
    ],
  );
});

test('the machine is on the wire only if requested', () => {
  assert.deepEqual(plan({}).machineAddresses, []);
  assert.deepEqual(plan({ hostAccess: 'wire', ipFamily: 'dual' }).machineAddresses, [
    '172.30.0.3',
    'fd00:172:30::3',
  ]);
  assert.deepEqual(plan({ egress: true }).machineAddresses, ['172.30.0.3']);
});

test('a dual-stack cluster has one network of each family, IPv4 first', () => {
  const state = plan({ ipFamily: 'dual' });
  assert.deepEqual(state.podCidrs, ['10.244.0.0/16', 'fd00:10:244::/56']);
  assert.deepEqual(state.dnsAddresses, ['10.96.0.10', 'fd00:10:96::a']);
  assert.deepEqual(state.nodes[0]?.addresses, ['172.30.0.11', 'fd00:172:30::b']);
});

test('the wire avoids networks that are in use', () => {
  const state = plan({}, [uplink, { cidr: network('172.30.0.0/24'), by: 'cluster other' }]);
  assert.deepEqual(state.wireCidrs, ['172.30.1.0/24']);
});

const refused: [string, Partial<ClusterRequest>, RegExp][] = [
  ['text that is not a network', { podCidr: 'ten' }, /--pod-cidr: "ten" is not a network/],
  ['host bits', { podCidr: '10.20.0.1/16' }, /did you mean 10\.20\.0\.0\/16/],
  [
    'a network of the machine',
    { podCidr: '192.168.0.0/16' },
    /192\.168\.0\.0\/16 overlaps .*, which is in use \(route via eth0\)/,
  ],
  ['pods inside the Services', { podCidr: '10.96.0.0/16' }, /overlaps the Services' network/],
  ['too small for the nodes', { podCidr: '10.20.0.0/23' }, /no room for 3 nodes/],
  [
    'too small for the pods of each node',
    { podCidr: '10.20.0.0/22', maxPods: 400 },
    /no room for 3 nodes with a \/23 each/,
  ],
  ['Services without room', { serviceCidr: '10.9.0.0/30' }, /too small/],
  ['the wrong family', { podCidr: 'fd00::/48' }, /one network for each of ipv4/],
  ['one family of two', { ipFamily: 'dual', podCidr: '10.20.0.0/16' }, /one network for each of ipv4, ipv6/],
  ['a pool that is none', { lbPool: 'here-there' }, /--lb-pool: "here-there" is not a network/],
  [
    'a pool outside the network between the nodes',
    { lbPool: '172.30.0.240-172.30.0.250,192.0.2.0/28' },
    /--lb-pool: 192\.0\.2\.0\/28 is outside the network between the nodes, 172\.30\.0\.0\/24/,
  ],
  [
    'a pool with addresses of nodes',
    { lbPool: '172.30.0.100-172.30.0.150' },
    /--lb-pool: 172\.30\.0\.100-172\.30\.0\.150 overlaps the addresses of nodes, which are those before 172\.30\.0\.111/,
  ],
  ['a pool of another family', { lbPool: 'fd00::/120' }, /is IPv6, which this cluster does not use/],
];
for (const [what, changes, message] of refused) {
  test(`refuses ${what}`, () => {
    assert.throws(() => plan(changes), { name: 'FairleadError', message });
  });
}

function network(text: string) {
  const cidr = parseCidr(text);
  assert.ok(cidr);
  return cidr;
}

for (const [maxPods, prefix] of [
  [1, 24],
  [250, 24],
  [251, 23],
  [506, 23],
  [507, 22],
  [1000, 22],
] as const) {
  test(`a node with room for ${maxPods} pods has a /${prefix} and, in IPv6, a /64`, () => {
    assert.deepEqual(nodePrefixes(maxPods), { ipv4: prefix, ipv6: 64 });
  });
}
