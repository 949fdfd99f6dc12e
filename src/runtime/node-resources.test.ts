import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { NodeResources } from './node-resources.ts';

const OWN = { cpu: '2', memory: '1Gi', pods: '3' };
const GPU = 'example.com/gpu';

const pod = (uid: string, requests: Record<string, string> = {}): Pod => ({
  metadata: { uid },
  spec: { containers: [{ name: 'main', resources: { requests } }] },
});

/** Rows: pods that run, a new pod, and the reason and message of its rejection. */
const ROWS: readonly (readonly [
  what: string,
  running: readonly Pod[],
  asked: Pod,
  expected: { reason: string; message: string } | null,
])[] = [
  ['what exactly fits is admitted', [pod('a', { cpu: '1500m' })], pod('b', { cpu: '500m' }), null],
  [
    'too much of the processor',
    [pod('a', { cpu: '1500m' })],
    pod('b', { cpu: '501m' }),
    {
      reason: 'OutOfcpu',
      message: "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
    },
  ],
  [
    'too much memory',
    [],
    pod('b', { memory: '2Gi' }),
    {
      reason: 'OutOfmemory',
      message:
        "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
    },
  ],
  [
    'too many pods',
    [pod('a'), pod('b'), pod('c')],
    pod('d'),
    {
      reason: 'OutOfpods',
      message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
    },
  ],
  [
    'an extended resource of which too little is left',
    [pod('a', { [GPU]: '1' })],
    pod('b', { [GPU]: '2' }),
    {
      reason: `OutOf${GPU}`,
      message: `Node didn't have enough resource: ${GPU}, requested: 2, used: 1, capacity: 2`,
    },
  ],
  ['an extended resource that no node has', [], pod('b', { 'example.com/licence': '1' }), null],
  ['a full node admits pods without requests', [pod('a', { cpu: '2' })], pod('b'), null],
];
for (const [what, running, asked, expected] of ROWS) {
  test(what, () => {
    const resources = new NodeResources(OWN, () => ({ [GPU]: '2' }));
    for (const one of running) assert.equal(resources.admit(one), null);
    assert.deepEqual(resources.admit(asked), expected);
    assert.equal(resources.holds(asked.metadata?.uid ?? ''), expected === null);
  });
}

test('the share of an ended pod is free again', () => {
  const resources = new NodeResources(OWN);
  resources.adopt(pod('a', { cpu: '2' }));
  assert.equal(resources.admit(pod('b', { cpu: '1' }))?.reason, 'OutOfcpu');
  resources.release('a');
  assert.equal(resources.admit(pod('b', { cpu: '1' })), null);
});

test('a resize changes the share, unless it exceeds the node', () => {
  const resources = new NodeResources(OWN);
  resources.adopt(pod('a', { cpu: '500m' }));
  resources.resize(pod('a', { cpu: '1' }));
  resources.resize(pod('a', { cpu: '100' }));
  assert.equal(resources.admit(pod('b', { cpu: '1001m' }))?.reason, 'OutOfcpu');
  assert.equal(resources.admit(pod('b', { cpu: '1' })), null);
});

test('the extended resources of the Node object may change', () => {
  let extended: Record<string, string> = {};
  const resources = new NodeResources(OWN, () => extended);
  assert.equal(resources.offers(GPU), false);
  extended = { [GPU]: '1' };
  assert.equal(resources.offers(GPU), true);
  assert.equal(resources.admit(pod('a', { [GPU]: '1' })), null);
  assert.equal(resources.admit(pod('b', { [GPU]: '1' }))?.reason, `OutOf${GPU}`);
});
