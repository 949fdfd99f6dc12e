import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linkLocal, podRoutes, type RoutingNode, tunnelMac } from './overlay-routes.ts';
import { type PeerNode, peerNode } from './peer-node.ts';

const self = (more: Partial<RoutingNode> = {}): RoutingNode => ({
  name: 'a',
  podCidrs: ['10.244.1.0/24', 'fd00:1::/64'],
  overlay: 'routes',
  tunnelFamily: 'ipv4',
  ...more,
});
const node = (name: string, addresses: string[], podCidrs: string[]): PeerNode => ({
  name,
  addresses,
  podCidrs,
});
const b = node('b', ['192.0.2.2', '2001:db8::2'], ['10.244.2.0/24', 'fd00:2::/64']);

const rows: [string, RoutingNode, PeerNode[], Record<string, string>][] = [
  [
    'through the node’s address of the same family',
    self(),
    [b],
    { '10.244.2.0/24': '192.0.2.2', 'fd00:2::/64': '2001:db8::2' },
  ],
  [
    'with VXLAN through the address of the node’s device',
    self({ overlay: 'vxlan' }),
    [b],
    { '10.244.2.0/24': '10.244.2.0', 'fd00:2::/64': linkLocal(tunnelMac('b')) },
  ],
  ['none to the node itself', self(), [node('a', ['192.0.2.1'], ['10.244.7.0/24'])], {}],
  [
    'none to its own network if another node claims it',
    self(),
    [node('c', ['192.0.2.3'], ['10.244.1.0/24'])],
    {},
  ],
  ['none into part of its own network', self(), [node('c', ['192.0.2.3'], ['10.244.1.128/25'])], {}],
  ['none without an address of the family', self(), [node('c', ['192.0.2.3'], ['fd00:3::/64'])], {}],
  [
    'none over VXLAN without an address of the tunnel’s',
    self({ overlay: 'vxlan' }),
    [node('c', ['2001:db8::3'], ['10.244.3.0/24'])],
    {},
  ],
  ['none before the node has a network', self(), [node('c', ['192.0.2.3'], [])], {}],
  [
    'to the first by name of two nodes with the same network',
    self(),
    [node('d', ['192.0.2.4'], ['10.244.3.0/24']), node('c', ['192.0.2.3'], ['10.244.3.0/24'])],
    { '10.244.3.0/24': '192.0.2.3' },
  ],
];
for (const [name, from, nodes, expected] of rows) {
  test(`routes: ${name}`, () => {
    const routes = [...podRoutes(from, nodes)].map(([destination, route]) => [destination, route.via]);
    assert.deepEqual(Object.fromEntries(routes), expected);
  });
}

test('a Node object is read without its malformed parts', () => {
  assert.deepEqual(
    peerNode({
      metadata: { name: 'n' },
      spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.7/24', 'nonsense', 'fd00:1::/64'] },
      status: {
        addresses: [
          { type: 'Hostname', address: 'n' },
          { type: 'ExternalIP', address: '198.51.100.1' },
          { type: 'InternalIP', address: 'nonsense' },
          { type: 'InternalIP', address: '192.0.2.1' },
          { type: 'InternalIP', address: '2001:DB8::1' },
        ],
      },
    }),
    { name: 'n', addresses: ['192.0.2.1', '2001:db8::1'], podCidrs: ['10.244.1.0/24', 'fd00:1::/64'] },
  );
  assert.deepEqual(peerNode({ metadata: { name: 'n' }, spec: { podCIDR: '10.0.0.0/24' } }).podCidrs, [
    '10.0.0.0/24',
  ]);
  const external = [{ type: 'ExternalIP', address: '198.51.100.1' }];
  assert.deepEqual(peerNode({ status: { addresses: external } }).addresses, ['198.51.100.1']);
  assert.deepEqual(peerNode({}), { name: '', addresses: [], podCidrs: [] });
});

test('a link-local address is derived from a MAC', () => {
  assert.equal(linkLocal('02:00:5e:10:00:01'), 'fe80::5eff:fe10:1');
  assert.match(tunnelMac('node-1'), /^02(:[0-9a-f]{2}){5}$/);
  assert.notEqual(tunnelMac('node-1'), tunnelMac('node-2'));
});
