import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Pod } from '../kube/types.ts';
import { parseCidr } from '../lib/address.ts';
import { allocatePodCidrs } from './node-ipam.ts';
import { failureMessage, type NodeLoad, requestsOf, selectNode } from './node-selection.ts';
import { findPreemption } from './preemption.ts';
import { node, type PodFields, pod } from './testing/objects.ts';

const fresh = (fields: PodFields = {}) => pod('new', { node: '', phase: 'Pending', ...fields });
const asking = (requests: Record<string, string>): Partial<NonNullable<Pod['spec']>> => ({
  containers: [{ name: 'main', image: 'host', resources: { requests } }],
});
const zone = (name: string) => ({ labels: { 'topology.kubernetes.io/zone': name } });
const apart = {
  requiredDuringSchedulingIgnoredDuringExecution: [
    { labelSelector: { matchLabels: { app: 'web' } }, topologyKey: 'kubernetes.io/hostname' },
  ],
};
const taint = { key: 'dedicated', value: 'db', effect: 'NoSchedule' };
const hostPort = (port: number): Partial<NonNullable<Pod['spec']>> => ({
  containers: [{ name: 'main', image: 'host', ports: [{ containerPort: port, hostPort: port }] }],
});

interface Row {
  readonly name: string;
  readonly pod: Pod;
  readonly nodes: readonly (readonly [Node, ...Pod[]])[];
  /** The node, or the message. */
  readonly expected: string;
}
const ROWS: readonly Row[] = [
  { name: 'the only node', pod: fresh(), nodes: [[node('a')]], expected: 'a' },
  { name: 'no node', pod: fresh(), nodes: [], expected: '0/0 nodes are available.' },
  {
    name: 'the emptier node',
    pod: fresh({ owner: '' }),
    nodes: [[node('a'), pod('x')], [node('b')]],
    expected: 'b',
  },
  {
    name: 'separate from its siblings, even on a fuller node',
    pod: fresh(),
    nodes: [
      [node('a'), pod('x')],
      [node('b'), pod('y', { owner: 'o' }), pod('z', { owner: 'o' })],
    ],
    expected: 'b',
  },
  {
    name: 'nodeSelector',
    pod: fresh({ spec: { nodeSelector: { disk: 'ssd' } } }),
    nodes: [[node('a')], [node('b', { labels: { disk: 'ssd' } })]],
    expected: 'b',
  },
  {
    name: 'node affinity by expression',
    pod: fresh({
      spec: {
        affinity: {
          nodeAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: {
              nodeSelectorTerms: [{ matchExpressions: [{ key: 'cores', operator: 'Gt', values: ['4'] }] }],
            },
          },
        },
      },
    }),
    nodes: [[node('a', { labels: { cores: '4' } })], [node('b', { labels: { cores: '8' } })]],
    expected: 'b',
  },
  {
    name: 'a taint excludes it',
    pod: fresh(),
    nodes: [[node('a', { taints: [taint] })]],
    expected: '0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: db}.',
  },
  {
    name: 'a toleration admits it',
    pod: fresh({ spec: { tolerations: [{ key: 'dedicated', operator: 'Exists' }] } }),
    nodes: [[node('a', { taints: [taint] })]],
    expected: 'a',
  },
  {
    name: 'a cordoned node and one that is not ready',
    pod: fresh(),
    nodes: [[node('a', { unschedulable: true })], [node('b', { ready: 'False' })]],
    expected:
      '0/2 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 1 node(s) were unschedulable.',
  },
  {
    name: 'a node that has not reported yet',
    pod: fresh(),
    nodes: [[node('a', { ready: null })]],
    expected: '0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.',
  },
  {
    name: 'too little CPU',
    pod: fresh({ spec: asking({ cpu: '1500m' }) }),
    nodes: [[node('a'), pod('x', { spec: asking({ cpu: '3' }) })]],
    expected: '0/1 nodes are available: 1 Insufficient cpu.',
  },
  {
    name: 'just enough CPU',
    pod: fresh({ spec: asking({ cpu: '1000m' }) }),
    nodes: [[node('a'), pod('x', { spec: asking({ cpu: '3' }) })]],
    expected: 'a',
  },
  {
    name: 'too many pods',
    pod: fresh(),
    nodes: [[node('a', { allocatable: { pods: '1' } }), pod('x')]],
    expected: '0/1 nodes are available: 1 Too many pods.',
  },
  {
    name: 'a host port in use',
    pod: fresh({ spec: hostPort(80) }),
    nodes: [
      [node('a'), pod('x', { spec: hostPort(80) })],
      [node('b'), pod('y', { spec: hostPort(81) })],
    ],
    expected: 'b',
  },
  {
    name: 'anti-affinity to an existing pod',
    pod: fresh({ spec: { affinity: { podAntiAffinity: apart } } }),
    nodes: [[node('a'), pod('x')]],
    expected: "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
  },
  {
    name: 'anti-affinity of an existing pod',
    pod: fresh(),
    nodes: [[node('a'), pod('x', { spec: { affinity: { podAntiAffinity: apart } } })]],
    expected: "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.",
  },
  {
    name: 'affinity to its own group: the first is placed anywhere',
    pod: fresh({ spec: { affinity: { podAffinity: apart } } }),
    nodes: [[node('a')]],
    expected: 'a',
  },
  {
    name: 'affinity to its own group: the second joins the first',
    pod: fresh({ spec: { affinity: { podAffinity: apart } } }),
    nodes: [[node('a')], [node('b'), pod('x')]],
    expected: 'b',
  },
  {
    name: 'hard spread over zones',
    pod: fresh({
      spec: {
        topologySpreadConstraints: [
          {
            maxSkew: 1,
            topologyKey: 'topology.kubernetes.io/zone',
            whenUnsatisfiable: 'DoNotSchedule',
            labelSelector: { matchLabels: { app: 'web' } },
          },
        ],
      },
    }),
    nodes: [
      [node('a', zone('one')), pod('x')],
      [node('b', zone('one'))],
      [node('c', zone('two')), pod('y', { labels: {} }), pod('z', { labels: {} })],
    ],
    expected: 'c',
  },
];
for (const row of ROWS) {
  test(`scheduling: ${row.name}`, () => {
    const loads: NodeLoad[] = row.nodes.map(([object, ...pods]) => ({ node: object, pods }));
    const result = selectNode(row.pod, loads, () => 0.5);
    assert.equal(
      result.node ?? ('reasons' in result ? failureMessage(loads.length, result.reasons) : ''),
      row.expected,
    );
  });
}

const priority = (value: number, cpu: string, more: object = {}) => ({
  spec: { ...asking({ cpu }), priority: value, ...more },
});
const PREEMPTIONS: readonly [
  name: string,
  asked: object,
  nodes: readonly (readonly [Node, ...Pod[]])[],
  expected: string | null,
][] = [
  [
    'as few and as unimportant victims as possible',
    priority(10, '2'),
    [[node('a'), pod('x', priority(1, '2')), pod('y', priority(0, '2'))]],
    'a: y',
  ],
  [
    'the node with the less important victims',
    priority(10, '4'),
    [
      [node('a'), pod('x', priority(5, '4'))],
      [node('b'), pod('y', priority(1, '2')), pod('z', priority(1, '2'))],
    ],
    'b: y z',
  ],
  ['equals stay', priority(10, '2'), [[node('a'), pod('x', priority(10, '4'))]], null],
  [
    'a pod that is already being deleted makes room without further victims',
    priority(10, '2'),
    [[node('a'), pod('x', { ...priority(0, '2'), deleting: true }), pod('y', priority(0, '2'))]],
    'a: ',
  ],
  [
    'a pod that never preempts',
    priority(10, '2', { preemptionPolicy: 'Never' }),
    [[node('a'), pod('x', priority(0, '4'))]],
    null,
  ],
  [
    'a cluster where preemption does not help',
    priority(10, '2', { nodeSelector: { disk: 'ssd' } }),
    [[node('a'), pod('x', priority(0, '4'))]],
    null,
  ],
  [
    'a pod that is too large for any node',
    priority(10, '400'),
    [[node('a'), pod('x', priority(0, '4'))]],
    null,
  ],
];
for (const [name, asked, nodes, expected] of PREEMPTIONS) {
  test(`preemption: ${name}`, () => {
    const loads = nodes.map(([object, ...pods]) => ({ node: object, pods }));
    const found = findPreemption(fresh(asked), loads);
    const names = (found?.victims ?? []).map(({ metadata }) => metadata?.name).sort();
    assert.equal(found && `${found.node}: ${names.join(' ')}`, expected);
  });
}

test('an init container that requests more than all containers together counts', () => {
  const requests = requestsOf({
    spec: {
      containers: [
        { name: 'x', resources: { requests: { cpu: '100m' } } },
        { name: 'y', resources: { requests: { cpu: '200m', memory: '1Gi' } } },
      ],
      initContainers: [{ name: 'i', resources: { requests: { cpu: '1' } } }],
    },
  });
  assert.deepEqual(Object.fromEntries(requests), { cpu: 1, memory: 2 ** 30 });
});

const pool = (text: string, prefix: number) => {
  const cidr = parseCidr(text);
  assert.ok(cidr);
  return { cidr, prefix };
};
const CIDRS: readonly [
  name: string,
  pools: ReturnType<typeof pool>[],
  nodes: Node[],
  hint: number,
  expected: string[] | null,
][] = [
  ['the first', [pool('10.0.0.0/16', 24)], [], 0, ['10.0.0.0/24']],
  ['a free one', [pool('10.0.0.0/16', 24)], [node('a', { podCIDRs: ['10.0.0.0/24'] })], 0, ['10.0.1.0/24']],
  ['not the one released last', [pool('10.0.0.0/16', 24)], [], 1, ['10.0.1.0/24']],
  [
    'wraps around to the beginning',
    [pool('10.0.0.0/23', 24)],
    [node('a', { podCIDRs: ['10.0.1.0/24'] })],
    1,
    ['10.0.0.0/24'],
  ],
  [
    'both families',
    [pool('10.0.0.0/16', 24), pool('fd00::/48', 64)],
    [],
    2,
    ['10.0.2.0/24', 'fd00:0:0:2::/64'],
  ],
  [
    'a larger, manually set subnet is avoided',
    [pool('10.0.0.0/16', 24)],
    [node('a', { podCIDRs: ['10.0.0.0/20'] })],
    0,
    ['10.0.16.0/24'],
  ],
  ['exhausted', [pool('10.0.0.0/24', 24)], [node('a', { podCIDRs: ['10.0.0.0/24'] })], 0, null],
];
for (const [name, pools, nodes, hint, expected] of CIDRS) {
  test(`a node's podCIDR: ${name}`, () => {
    assert.deepEqual(allocatePodCidrs(pools, nodes, hint)?.podCidrs ?? null, expected);
  });
}
