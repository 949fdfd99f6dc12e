import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { churnPods, podLeftovers } from './testing/pod-churn.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';

let node: PodNode;

before(async () => {
  node = await startPodNode();
  await node.startAgent();
});
after(() => node?.close());

test('many pods start and stop at once: no duplicate addresses, and no state remains', async () => {
  for (let round = 0; round < 2; round++) await churnPods(node, 20, `pod-${round}`);
  assert.deepEqual(podLeftovers(node), []);
});

test('no state remains of pods whose agent dies while they start and stop', async () => {
  const churn = churnPods(node, 10, 'hurt');
  for (let kill = 0; kill < 3; kill++) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    await node.killAgent();
    await node.startAgent();
  }
  await churn;
  assert.deepEqual(podLeftovers(node), []);
});
