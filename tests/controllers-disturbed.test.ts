import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ApiResponse, Transport } from '../src/kube/transport.ts';
import { type Deployment, type Pod, RESOURCES } from '../src/kube/types.ts';
import { pause, systemClock } from '../src/lib/clock.ts';
import { startControlPlane } from './testing/control-plane.ts';

function deployment(name: string, replicas: number, image: string): Deployment {
  return {
    metadata: { name, namespace: 'default' },
    spec: {
      replicas,
      selector: { matchLabels: { app: name } },
      template: {
        metadata: { labels: { app: name } },
        spec: { containers: [{ name: 'main', image, command: ['sleep'] }] },
      },
    },
  };
}

/** Returns a deterministic random number generator (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

async function* once(text: string) {
  yield Buffer.from(text);
}

function refusal(status: number, reason: string): ApiResponse {
  const body = JSON.stringify({
    kind: 'Status',
    status: 'Failure',
    code: status,
    reason,
    message: `disturbed: ${reason}`,
  });
  return { status, headers: {}, body: once(body) };
}

/**
 * Disturbs a transport: some writes are rejected as conflicts, some fail, and some succeed but their
 * answers get lost; watches break.
 */
function disturbed(random: () => number): (transport: Transport) => Transport {
  return (transport) => async (request) => {
    if (request.method === 'GET') {
      if (!request.path.includes('watch=true')) return transport(request);
      const response = await transport(request);
      return { ...response, body: broken(response.body, 5 + Math.floor(random() * 60)) };
    }
    const luck = random();
    if (luck < 0.08) return refusal(409, 'Conflict');
    if (luck < 0.12) return refusal(500, 'InternalError');
    const response = await transport(request);
    if (luck < 0.16) throw new Error('disturbed: the answer was lost');
    return response;
  };
}

async function* broken(body: AsyncIterable<Uint8Array>, after: number) {
  let left = after;
  for await (const chunk of body) {
    yield chunk;
    if (left-- === 0) throw new Error('disturbed: the connection broke');
  }
}

const imageOf = (pod: Pod) => pod.spec?.containers[0]?.image;
const of = (app: string) => (pod: Pod) => pod.metadata?.labels?.['app'] === app;

describe('controllers', { timeout: 120_000 }, () => {
  for (const seed of [1, 2, 3]) {
    test(`converge with conflicts, lost answers and broken watches (seed ${seed})`, async () => {
      const plane = await startControlPlane({ disturb: disturbed(seeded(seed)) });
      try {
        for (const name of ['a', 'b', 'c']) await plane.addNode(name);
        await plane.client.create(RESOURCES.services, {
          metadata: { name: 'web', namespace: 'default' },
          spec: { selector: { app: 'web' }, ports: [{ port: 80 }] },
        });
        await plane.client.create(RESOURCES.deployments, deployment('web', 12, 'host:1'));
        const settled = (image: string, count: number) =>
          plane.until(RESOURCES.pods, `${count} pods of ${image}`, (pods) => {
            const mine = pods.filter(of('web'));
            const ready = mine.filter(({ status }) => status?.phase === 'Running');
            return mine.length === count &&
              ready.length === count &&
              mine.every((pod) => imageOf(pod) === image)
              ? true
              : undefined;
          });
        await settled('host:1', 12);
        const patch = { spec: { template: { spec: { containers: [{ name: 'main', image: 'host:2' }] } } } };
        await plane.client.patch(RESOURCES.deployments, 'web', 'strategic', patch, { namespace: 'default' });
        await settled('host:2', 12);
        await plane.client.scale(RESOURCES.deployments, 'web', 'default', 4);
        await settled('host:2', 4);
        await plane.until(RESOURCES.endpointSlices, 'four endpoints', (slices) => {
          const mine = slices.filter(
            ({ metadata }) => metadata?.labels?.['kubernetes.io/service-name'] === 'web',
          );
          return mine.flatMap(({ endpoints }) => endpoints).length === 4 ? true : undefined;
        });
        const pods = (await plane.client.list(RESOURCES.pods, { labelSelector: 'app=web' })).items;
        assert.equal(new Set(pods.map(({ status }) => status?.podIP)).size, 4);
        await plane.client.delete(RESOURCES.deployments, 'web', { namespace: 'default' });
        await plane.until(RESOURCES.pods, 'none left', (left) => (left.some(of('web')) ? undefined : true));
      } finally {
        await plane.close();
      }
    });
  }

  test('create no duplicate pods when they are restarted repeatedly', async () => {
    const plane = await startControlPlane();
    try {
      for (const name of ['a', 'b']) await plane.addNode(name);
      await plane.client.create(RESOURCES.deployments, deployment('web', 20, 'host:1'));
      for (let i = 0; i < 5; i++) await plane.restartControllers();
      await plane.until(RESOURCES.deployments, 'all twenty', ([found]) =>
        found?.status?.availableReplicas === 20 ? true : undefined,
      );
      const { items } = await plane.client.list(RESOURCES.pods);
      assert.equal(items.length, 20);
      assert.equal((await plane.client.list(RESOURCES.replicaSets)).items.length, 1);
      const created = (await plane.client.list(RESOURCES.events)).items.filter(
        ({ reason }) => reason === 'SuccessfulDelete',
      );
      assert.equal(created.length, 0, 'none was one too many');
    } finally {
      await plane.close();
    }
  });

  test('remove the pods of a silent node from Services, and add them again when it returns', async () => {
    const plane = await startControlPlane({ nodeGraceSeconds: 1 });
    let isOver = false;
    let heart: Promise<void> | undefined;
    try {
      await plane.addNode('a');
      heart = (async () => {
        for (; !isOver; await pause(systemClock, 100)) if (!plane.freeze) await plane.beat('a');
      })();
      await plane.client.create(RESOURCES.services, {
        metadata: { name: 'web', namespace: 'default' },
        spec: { selector: { app: 'web' }, ports: [{ port: 80 }] },
      });
      await plane.client.create(RESOURCES.deployments, deployment('web', 1, 'host:1'));
      const ready = (wanted: boolean) =>
        plane.until(RESOURCES.endpointSlices, `ready: ${wanted}`, ([slice]) =>
          slice?.endpoints?.[0]?.conditions?.ready === wanted ? true : undefined,
        );
      await ready(true);
      plane.freeze = true;
      await ready(false);
      const node = await plane.until(RESOURCES.nodes, 'unreachable', ([found]) =>
        found?.spec?.taints?.some(
          ({ key, effect }) => key === 'node.kubernetes.io/unreachable' && effect === 'NoExecute',
        )
          ? found
          : undefined,
      );
      assert.equal(node.status?.conditions?.find(({ type }) => type === 'Ready')?.status, 'Unknown');
      plane.freeze = false;
      await plane.until(RESOURCES.nodes, 'no taints', ([found]) =>
        (found?.spec?.taints ?? []).length === 0 ? true : undefined,
      );
      await ready(true);
    } finally {
      isOver = true;
      await heart;
      await plane.close();
    }
  });
});
