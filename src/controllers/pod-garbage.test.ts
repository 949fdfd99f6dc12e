import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { garbagePods } from './pod-garbage.ts';
import { node, pod } from './testing/objects.ts';

const outOfService = { key: 'node.kubernetes.io/out-of-service', effect: 'NoExecute' };
const ROWS: readonly [name: string, pods: Pod[], garbage: string[]][] = [
  ['running pods are kept', [pod('a')], []],
  [
    'the oldest finished pods beyond the limit are deleted',
    [1, 3, 2].map((age) => pod(`p${age}`, { phase: 'Failed', age })),
    ['p3'],
  ],
  ['a deleted pod without a node is removed', [pod('a', { node: '', deleting: true })], ['a']],
  ['a deleted pod on a working node is left to the node', [pod('a', { deleting: true })], []],
  ['a deleted pod on a node out of service is removed', [pod('a', { node: 'lost', deleting: true })], ['a']],
  ['a pod on a node out of service that is not deleted is kept', [pod('a', { node: 'lost' })], []],
];
for (const [name, pods, expected] of ROWS) {
  test(name, () => {
    const nodes = [node('a'), node('lost', { ready: 'Unknown', taints: [outOfService] })];
    const found = garbagePods({ pods, nodes, maxFinished: 2 });
    assert.deepEqual(
      found.map(({ metadata }) => metadata?.name),
      expected,
    );
  });
}
