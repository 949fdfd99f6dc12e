import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { type PodNode, startPodNode } from './support/pod-node.ts';

let node: PodNode;

before(async () => {
  node = await startPodNode();
  await node.startAgent();
});
after(() => node?.close());

const sleeper = (more: object = {}) => ({ name: 'main', image: 'host', command: ['sleep', '1000'], ...more });
const logs = async (pod: string, query = '') =>
  (await node.api.request('GET', `${CORE}/pods/${pod}/log${query}`)).body;

test('a pod of image host runs, has an address, logs, and leaves when deleted', async () => {
  await node.createPod('first', {
    containers: [sleeper({ command: ['sh', '-c', 'echo hello; exec sleep 1000'] })],
  });
  const pod = await node.until('first', (one) => one.status.phase === 'Running');
  assert.match(pod.status.podIP, /^10\.244\.1\./);
  assert.equal(pod.status.containerStatuses[0].ready, true);
  assert.equal(pod.status.qosClass, 'BestEffort');
  assert.deepEqual(
    pod.status.conditions.map((one: { type: string; status: string }) => `${one.type}=${one.status}`).sort(),
    [
      'ContainersReady=True',
      'Initialized=True',
      'PodReadyToStartContainers=True',
      'PodScheduled=True',
      'Ready=True',
    ],
  );
  assert.equal(await logs('first'), 'hello\n');
  const { status } = await node.api.request('DELETE', `${CORE}/pods/first`);
  assert.equal(status, 200);
  await node.until('first', (one) => one === null);
});
