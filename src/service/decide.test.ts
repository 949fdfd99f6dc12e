import assert from 'node:assert/strict';
import { test } from 'node:test';
import { classify, type SourceFacts } from './classify.ts';
import { compile } from './compile.ts';
import { decide } from './decide.ts';
import type { NodeView, Packet, SourceClass } from './model.ts';
import { webService, webSlice } from './testing/objects.ts';
import { network, testNode } from './testing/test-node.ts';

const services = [
  webService(
    {
      type: 'LoadBalancer',
      clusterIPs: ['10.96.0.1', 'fd00:96::1'],
      ports: [{ name: 'http', port: 80, nodePort: 30_080 }],
      loadBalancerSourceRanges: ['198.51.100.0/24'],
      sessionAffinity: 'ClientIP',
    },
    {},
    [{ ip: '203.0.113.1' }],
  ),
  webService({ clusterIPs: ['10.96.0.2'] }, { name: 'empty' }),
];
const slices = [
  webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2']),
  webSlice(['fd00:244:0:1::2 @node-1'], { name: 'web-6' }),
];

/** The packet as "CLASS SOURCE > DESTINATION:PORT[/PROTOCOL]"; the expected verdict. */
const rows: readonly [name: string, packet: string, verdict: string, node?: Partial<NodeView>][] = [
  ['a pod to a cluster IP', 'pod 10.244.1.9 > 10.96.0.1:80', 'forward 10.244.1.2=0.5 10.244.2.2=0.5'],
  [
    'an endpoint to its own Service is masqueraded to itself only',
    'pod 10.244.1.2 > 10.96.0.1:80',
    'forward 10.244.1.2=0.5 hairpin 10.244.2.2=0.5',
  ],
  [
    'an endpoint of another node reaches the cluster IP through its own node',
    'pod 10.244.2.2 > 10.96.0.1:80',
    'forward 10.244.1.2=0.5 10.244.2.2=0.5',
  ],
  [
    'a client outside the cluster to a cluster IP',
    'external 198.51.100.7 > 10.96.0.1:80',
    'forward 10.244.1.2=0.5 masq 10.244.2.2=0.5 masq',
  ],
  ['IPv6', 'pod fd00:244:0:1::9 > fd00:96::1:80', 'forward fd00:244:0:1::2=1'],
  [
    'an IPv6 address written at length',
    'pod fd00:244:0:1::9 > fd00:0096:0:0:0:0:0:1:80',
    'forward fd00:244:0:1::2=1',
  ],
  ['no endpoints', 'pod 10.244.1.9 > 10.96.0.2:80', 'reject no-endpoints'],
  ['a wrong port of a cluster IP', 'pod 10.244.1.9 > 10.96.0.1:81', 'reject wrong-port'],
  ['a wrong protocol of a cluster IP', 'pod 10.244.1.9 > 10.96.0.1:80/UDP', 'reject wrong-port'],
  ['an unallocated cluster IP', 'pod 10.244.1.9 > 10.96.7.7:80', 'drop unallocated-cluster-ip'],
  ['an address of no Service', 'pod 10.244.1.9 > 8.8.8.8:53/UDP', 'pass no-service'],
  [
    'an address of the node’s own DNS',
    'pod 10.244.1.9 > 10.96.0.10:53/UDP',
    'pass own-service-address',
    { ownServiceAddresses: ['10.96.0.10'] },
  ],
  [
    'a client inside the source ranges',
    'external 198.51.100.7 > 203.0.113.1:80',
    'forward 10.244.1.2=0.5 masq 10.244.2.2=0.5 masq',
  ],
  ['a client outside the source ranges', 'external 192.0.2.1 > 203.0.113.1:80', 'drop source-range'],
  ['a pod outside the source ranges', 'pod 10.244.1.9 > 203.0.113.1:80', 'drop source-range'],
  ['a wrong port of a load balancer', 'external 198.51.100.7 > 203.0.113.1:81', 'pass no-service'],
  [
    'a node port on the node’s address ignores source ranges',
    'external 192.0.2.1 > 192.168.0.1:30080',
    'forward 10.244.1.2=0.5 masq 10.244.2.2=0.5 masq',
  ],
  ['a node port number on another address', 'external 192.0.2.1 > 192.168.0.2:30080', 'pass no-service'],
  ['the service port on the node’s address', 'external 192.0.2.1 > 192.168.0.1:80', 'pass no-service'],
  [
    'a node port on an address that is not selected',
    'external 192.0.2.1 > 192.168.0.1:30080',
    'pass no-service',
    { nodePortAddresses: { ipv4: { all: false, cidrs: [network('10.0.0.0/8')] }, ipv6: { all: true } } },
  ],
  [
    'a node port on loopback',
    'node 127.0.0.1 > 127.0.0.1:30080',
    'forward 10.244.1.2=0.5 masq 10.244.2.2=0.5 masq',
  ],
  ['a node port on IPv6 loopback', 'node ::1 > ::1:30080', 'forward fd00:244:0:1::2=1 masq'],
  [
    'a node port on loopback where that is off',
    'node 127.0.0.1 > 127.0.0.1:30080',
    'pass no-service',
    { localhostNodePorts: false },
  ],
  ['a packet from outside to loopback', 'external 192.0.2.1 > 127.0.0.1:30080', 'drop martian'],
  ['a text that is not an address', 'pod x > 10.96.0.1:80', 'pass no-service'],
];

for (const [name, text, expected, node = {}] of rows) {
  test(name, () => {
    const verdict = decide(compile({ node: testNode(node), services, slices }), packetOf(text));
    const candidates = verdict.candidates.map(({ endpoint, odds, masquerade, hairpin }) => {
      return `${endpoint.ip}=${odds}${hairpin ? ' hairpin' : masquerade ? ' masq' : ''}`;
    });
    assert.equal(
      [verdict.action, ...(candidates.length > 0 ? candidates : [verdict.reason])].join(' '),
      expected,
    );
    assert.equal(verdict.affinitySeconds, verdict.action === 'forward' ? 10_800 : null);
  });
}

test('an endpoint of another node to itself, by this node’s node port of external policy Local: hairpin', () => {
  const local = webService({
    type: 'NodePort',
    externalTrafficPolicy: 'Local',
    ports: [{ name: 'http', port: 80, nodePort: 30_080 }],
  });
  const map = compile({ node: testNode(), services: [local], slices });
  const { candidates } = decide(map, packetOf('pod 10.244.2.2 > 192.168.0.1:30080'));
  assert.deepEqual(
    candidates.map(({ endpoint, hairpin, masquerade }) => [endpoint.ip, hairpin, masquerade]),
    [
      ['10.244.1.2', false, false],
      ['10.244.2.2', true, true],
    ],
  );
});

test('a node port answers on any address that the caller knows to be the node’s', () => {
  const map = compile({ node: testNode(), services, slices });
  const packet = packetOf('external 192.0.2.1 > 172.16.0.1:30080');
  assert.equal(decide(map, packet).action, 'pass');
  assert.equal(decide(map, { ...packet, destinationIsLocal: true }).action, 'forward');
});

const byInterface: Partial<NodeView> = { localDetection: { mode: 'BridgeInterface', interface: 'fl0' } };
const byPrefix: Partial<NodeView> = { localDetection: { mode: 'InterfaceNamePrefix', prefix: 'flp' } };
const blind: Partial<NodeView> = { localDetection: { mode: 'NodeCIDR', ipv4: null, ipv6: null } };
const sources: readonly [
  name: string,
  facts: SourceFacts,
  expected: SourceClass,
  node?: Partial<NodeView>,
][] = [
  ['an address of the cluster’s network', { source: '10.244.3.4', isNodeAddress: false }, 'pod'],
  ['an IPv6 address of the cluster’s network', { source: 'fd00:244::4', isNodeAddress: false }, 'pod'],
  ['a node address inside the cluster’s network', { source: '10.244.1.1', isNodeAddress: true }, 'pod'],
  ['a node address', { source: '192.168.0.1', isNodeAddress: true }, 'node'],
  ['any other address', { source: '192.0.2.1', isNodeAddress: false }, 'external'],
  ['no network for the family', { source: '10.244.3.4', isNodeAddress: false }, 'external', blind],
  [
    'arriving on the bridge',
    { source: '192.0.2.1', inInterface: 'fl0', isNodeAddress: false },
    'pod',
    byInterface,
  ],
  [
    'arriving on another interface',
    { source: '10.244.1.2', inInterface: 'fl01', isNodeAddress: false },
    'external',
    byInterface,
  ],
  ['from the node itself, by interface', { source: '192.168.0.1', isNodeAddress: true }, 'node', byInterface],
  [
    'arriving on a pod’s interface',
    { source: '192.0.2.1', inInterface: 'flp0a', isNodeAddress: false },
    'pod',
    byPrefix,
  ],
  [
    'arriving on the uplink',
    { source: '192.0.2.1', inInterface: 'eth0', isNodeAddress: false },
    'external',
    byPrefix,
  ],
];
for (const [name, facts, expected, node = {}] of sources) {
  test(`source class of ${name}`, () => assert.equal(classify(testNode(node), facts), expected));
}

function packetOf(text: string): Packet {
  const [, sourceClass, source, destination, port, protocol = 'TCP'] =
    /^(\w+) (\S+) > (\S+):(\d+)(?:\/(\w+))?$/.exec(text) ?? [];
  return {
    source: source ?? '',
    sourceClass: sourceClass as SourceClass,
    destination: destination ?? '',
    port: Number(port),
    protocol: protocol as Packet['protocol'],
  };
}
