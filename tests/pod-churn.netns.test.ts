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

test('pods come and go, many at once: no address is anybody’s twice, and nothing of them stays', async () => {
  for (let round = 0; round < 2; round++) await churnPods(node, 20, `pod-${round}`);
  assert.deepEqual(podLeftovers(node), []);
});

test('pods whose agent dies while they come and go leave nothing either', async () => {
  const churn = churnPods(node, 10, 'hurt');
  for (let kill = 0; kill < 3; kill++) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    await node.killAgent();
    await node.startAgent();
  }
  await churn;
  assert.deepEqual(podLeftovers(node), []);
});
