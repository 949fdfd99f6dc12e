import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type NodeSettings, readNodeView } from './node-view.ts';
import type { NodeObject } from './objects.ts';
import { network } from './testing/test-node.ts';

const NODE: NodeObject = {
  metadata: { name: 'node-1', labels: { 'topology.kubernetes.io/zone': 'zone-a' } },
  spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.0/24', 'fd00:244:0:1::/64'] },
  status: {
    addresses: [
      { type: 'Hostname', address: 'node-1' },
      { type: 'ExternalIP', address: '203.0.113.5' },
      { type: 'InternalIP', address: '192.168.0.1' },
      { type: 'InternalIP', address: 'fd00:168::1' },
    ],
  },
};
const V4_ONLY: NodeObject = {
  ...NODE,
  status: { addresses: [{ type: 'InternalIP', address: '192.168.0.1' }] },
};
const SETTINGS: NodeSettings = {
  nodePortAddresses: ['primary'],
  defaultNodePortAddresses: 'all',
  localhostNodePorts: true,
  detectLocalMode: 'ClusterCIDR',
  clusterCidrs: [network('10.244.0.0/16'), network('10.0.0.0/8'), network('fd00:244::/48')],
  bridgeInterface: '',
  interfaceNamePrefix: '',
  masqueradeAll: false,
  masqueradeBit: 14,
  serviceCidrs: [],
  ownServiceAddresses: [],
  ipvsScheduler: 'rr',
  families: ['ipv4', 'ipv6'],
};

test('name, zone, and the first internal address of each family', () => {
  const { view, warnings } = readNodeView(NODE, SETTINGS);
  assert.deepEqual(
    [view.name, view.zone, view.ipv4, view.ipv6],
    ['node-1', 'zone-a', '192.168.0.1', 'fd00:168::1'],
  );
  assert.deepEqual(warnings, []);
});

const nodePorts: Record<string, [entries: string[], ipv4: string, ipv6: string, loopback: boolean]> = {
  'not set: the default': [[], 'all', 'all', true],
  primary: [['primary'], '192.168.0.1/32', 'fd00:168::1/128', false],
  localhost: [['localhost'], '', '', true],
  'primary and localhost': [['primary', 'localhost'], '192.168.0.1/32', 'fd00:168::1/128', true],
  'all takes precedence over networks': [['all', '10.0.0.0/8'], 'all', 'all', true],
  'networks of both families': [['10.0.0.0/8', 'fd00::/8'], '10.0.0.0/8', 'fd00::/8', false],
  'a family without a network answers everywhere': [['10.0.0.0/8'], '10.0.0.0/8', 'all', false],
  'a loopback network': [['127.0.0.0/8', 'fd00::/8'], '127.0.0.0/8', 'fd00::/8', true],
  'a network and primary': [['10.0.0.0/8', 'primary'], '10.0.0.0/8 192.168.0.1/32', 'fd00:168::1/128', false],
};
for (const [name, [nodePortAddresses, ipv4, ipv6, loopback]] of Object.entries(nodePorts)) {
  test(`node port addresses: ${name}`, () => {
    const { view } = readNodeView(NODE, { ...SETTINGS, nodePortAddresses });
    const text = (family: 'ipv4' | 'ipv6') => {
      const selected = view.nodePortAddresses[family];
      return selected.all ? 'all' : selected.cidrs.map((cidr) => cidr.text).join(' ');
    };
    assert.deepEqual([text('ipv4'), text('ipv6'), view.localhostNodePorts], [ipv4, ipv6, loopback]);
  });
}

test('local detection takes the first network of a family, from the configuration or the Node object', () => {
  const detection = (change: Partial<NodeSettings>) =>
    readNodeView(NODE, { ...SETTINGS, ...change }).view.localDetection;
  assert.deepEqual(detection({}), {
    mode: 'ClusterCIDR',
    ipv4: network('10.244.0.0/16'),
    ipv6: network('fd00:244::/48'),
  });
  assert.deepEqual(detection({ detectLocalMode: 'NodeCIDR' }), {
    mode: 'NodeCIDR',
    ipv4: network('10.244.1.0/24'),
    ipv6: network('fd00:244:0:1::/64'),
  });
  assert.deepEqual(detection({ detectLocalMode: 'BridgeInterface', bridgeInterface: 'fl0' }), {
    mode: 'BridgeInterface',
    interface: 'fl0',
  });
});

const warned: Record<string, [object: NodeObject, change: Partial<NodeSettings>, pattern: RegExp]> = {
  'node ports are open everywhere': [
    NODE,
    { nodePortAddresses: [] },
    /nodePortAddresses is not set.*"primary"/,
  ],
  'node port addresses have networks of one family only': [
    NODE,
    { nodePortAddresses: ['10.0.0.0/8'] },
    /has no IPv6 network/,
  ],
  'no cluster network of a family': [
    NODE,
    { clusterCidrs: [network('10.0.0.0/8')] },
    /clusterCIDR has no IPv6 network: .*masqueraded/,
  ],
  'the name of the bridge is missing': [
    NODE,
    { detectLocalMode: 'BridgeInterface' },
    /bridgeInterface is empty/,
  ],
  'the interface prefix is missing': [
    NODE,
    { detectLocalMode: 'InterfaceNamePrefix' },
    /interfaceNamePrefix is empty/,
  ],
};
for (const [name, [object, change, pattern]] of Object.entries(warned)) {
  test(`a warning when ${name}`, () => {
    const { warnings } = readNodeView(object, { ...SETTINGS, ...change });
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', pattern);
  });
}

const refused: Record<string, [object: NodeObject, change: Partial<NodeSettings>, pattern: RegExp]> = {
  'cluster networks of the other family only': [
    V4_ONLY,
    { clusterCidrs: [network('fd00::/48')] },
    /clusterCIDR: fd00::/,
  ],
  'pod networks of the other family only': [
    { ...V4_ONLY, spec: { podCIDRs: ['fd00:244:0:1::/64'] } },
    { detectLocalMode: 'NodeCIDR' },
    /spec\.podCIDRs/,
  ],
  'a primary family that the node does not support': [
    NODE,
    { families: ['ipv6'] },
    /primary address 192\.168\.0\.1 is IPv4/,
  ],
};
for (const [name, [object, change, message]] of Object.entries(refused)) {
  test(`refused: ${name}`, () => {
    assert.throws(() => readNodeView(object, { ...SETTINGS, ...change }), { code: 'bad-config', message });
  });
}
