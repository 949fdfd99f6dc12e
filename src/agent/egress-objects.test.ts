import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EgressPod } from '../egress/model.ts';
import type { EgressGatewayObject } from '../kube/egress-gateway.ts';
import type { Node, Pod } from '../kube/types.ts';
import { parseCidr } from '../lib/address.ts';
import { peerNode } from '../network/peer-node.ts';
import { type EgressInputs, egressState, selectingAt } from './egress-objects.ts';
import { statusOf } from './egress-status.ts';

const node = (number: number, more: { labels?: Record<string, string>; ready?: boolean } = {}): Node => ({
  metadata: { name: `node-${number}`, labels: more.labels ?? {} },
  spec: { podCIDRs: [`10.244.${number}.0/24`] },
  status: {
    addresses: [{ type: 'InternalIP', address: `172.30.0.1${number}` }],
    conditions: [{ type: 'Ready', status: more.ready === false ? 'False' : 'True' }],
  },
});
const object = (name: string, spec: EgressGatewayObject['spec'], createdAt = '2026-01-01T00:00:00Z') =>
  ({
    metadata: { name, creationTimestamp: createdAt, generation: 3 },
    ...(spec ? { spec } : {}),
  }) as EgressGatewayObject;
const pod = (name: string, node: string, ip: string, hostNetwork = false): Pod => ({
  metadata: { namespace: 'shop', name, labels: { app: 'web' } },
  spec: { nodeName: node, containers: [], hostNetwork },
  status: { phase: 'Running', podIPs: [{ ip }] },
});
const PODS = [
  pod('a', 'node-1', '10.244.1.2'),
  pod('b', 'node-2', '10.244.2.2'),
  pod('h', 'node-1', '172.30.0.11', true),
];

function state(
  objects: readonly EgressGatewayObject[],
  nodes: readonly Node[] = [node(1), node(2), node(3)],
) {
  const inputs: EgressInputs = {
    objects,
    pods: PODS.filter(({ spec }) => !spec?.hostNetwork).map(
      ({ metadata, spec, status }): EgressPod => ({
        key: `shop/${metadata?.name}`,
        namespace: 'shop',
        node: spec?.nodeName ?? '',
        labels: { app: 'web' },
        addresses: (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
      }),
    ),
    labelsOf: (name) => (name === 'shop' ? {} : null),
    nodes,
    peers: nodes.map(peerNode),
    serviceNetworks: ['10.96.0.0/16'].flatMap((text) => parseCidr(text) ?? []),
  };
  return egressState(inputs);
}

const status = (
  objects: readonly EgressGatewayObject[],
  holders: Record<string, string>,
  name: string,
  nodes?: readonly Node[],
) => {
  const found = state(objects, nodes);
  const read = found.gateways.find(({ gateway }) => gateway.name === name);
  assert.ok(read);
  const view = {
    gateways: found.selecting,
    cluster: found.cluster,
    holders: new Map(Object.entries(holders)),
  };
  const at = Date.parse('2026-02-01T00:00:00Z');
  return statusOf(found, view, read, PODS, { since: new Map(), now: at });
};
const conditions = (one: ReturnType<typeof status>) =>
  Object.fromEntries(
    (one.conditions ?? []).map(({ type, status, message }) => [type, `${status}: ${message}`]),
  );

test('addresses are wanted by the ready nodes that the gateway selects', () => {
  const labels = { role: 'gateway' };
  const found = state(
    [object('a', { addresses: ['172.30.0.50'], nodeSelector: { matchLabels: labels } })],
    [node(1), node(2, { labels }), node(3, { labels, ready: false })],
  );
  assert.deepEqual([...(found.wanted.get('172.30.0.50')?.nodes ?? [])], ['node-2']);
  assert.deepEqual([...found.candidates], ['node-2']);
});

test('a node renders its own pods, and those of all nodes if it may have the address', () => {
  const labels = { role: 'gateway' };
  const found = state(
    [object('a', { addresses: ['172.30.0.50'], nodeSelector: { matchLabels: labels } })],
    [node(1), node(2, { labels }), node(3)],
  );
  const at = (name: string, ...own: string[]) => [
    ...(selectingAt(found, name, new Set(own))[0]?.sources.keys() ?? []),
  ];
  assert.deepEqual(at('node-1', '10.244.1.2'), ['10.244.1.2']);
  assert.deepEqual(at('node-2', '10.244.2.2'), ['10.244.1.2', '10.244.2.2']);
  assert.deepEqual(at('node-3'), []);
});

test('an address that the cluster uses is refused, and the pods have none', () => {
  for (const [address, message] of [
    ['172.30.0.12', /172\.30\.0\.12 is an address of node node-2/],
    ['10.96.0.10', /10\.96\.0\.10 is in a network of pods or Services/],
  ] as const) {
    const found = state([object('a', { addresses: [address] })]);
    assert.match(found.gateways[0]?.problem ?? '', message);
    assert.deepEqual([...found.wanted], []);
    assert.equal(found.selecting[0]?.sources.get('10.244.1.2'), null);
    const shown = conditions(status([object('a', { addresses: [address] })], {}, 'a'));
    assert.match(shown['Accepted'] ?? '', /^False: .*reach no host outside/);
  }
});

test('the status names nodes, times, pods, and pods in the network of their node', () => {
  const gateway = object('a', { addresses: ['172.30.0.50', '172.30.0.51'] });
  const found = status([gateway], { '172.30.0.50': 'node-2', '172.30.0.51': 'node-3' }, 'a');
  assert.equal(found.nodes, 'node-2,node-3');
  assert.equal(found.pods, 2);
  assert.equal(found.addresses?.[0]?.since, '2026-02-01T00:00:00Z');
  const shown = conditions(found);
  assert.equal(shown['Ready'], 'True: 172.30.0.50 by node-2; 172.30.0.51 by node-3');
  assert.match(shown['HostNetworkPods'] ?? '', /^True: 1 pods .* such as shop\/h/);
  assert.ok(found.conditions?.every(({ observedGeneration }) => observedGeneration === 3));
});

test('without a node, the condition says why', () => {
  const gateway = object('a', { addresses: ['172.30.0.50'] });
  assert.match(
    conditions(status([gateway], {}, 'a'))['Ready'] ?? '',
    /^False: no node has 172\.30\.0\.50.*loadBalancer/,
  );
  const none = [node(1, { ready: false })];
  assert.match(conditions(status([gateway], {}, 'a', none))['Ready'] ?? '', /no ready node is selected/);
});

test('the younger of two gateways that select the same pods reports it', () => {
  const objects = [
    object('young', { addresses: ['172.30.0.50'] }, '2026-01-02T00:00:00Z'),
    object('old', { addresses: ['172.30.0.51'] }),
  ];
  assert.match(conditions(status(objects, {}, 'old'))['Overlapping'] ?? '', /^False/);
  assert.match(
    conditions(status(objects, {}, 'young'))['Overlapping'] ?? '',
    /^True: EgressGateway old is older/,
  );
});
