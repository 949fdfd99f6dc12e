import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { electPools, POOLS_LEASE } from '../src/controllers/elected-pools.ts';
import { ingressAddresses } from '../src/kube/load-balancer.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

/** Agents of a cluster whose control plane does not allocate addresses. */

const POOLS = [{ name: 'public', ranges: ['192.0.2.1-192.0.2.9'] }];

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane({});
  await plane.addNode('node-1');
});
after(() => plane?.close());

function startAgent(identity: string): () => Promise<void> {
  const controller = new AbortController();
  const context = {
    client: plane.client,
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
    signal: controller.signal,
  };
  const ended = electPools(context, identity, POOLS);
  return async () => {
    controller.abort();
    await ended;
  };
}

const holder = (name: string) =>
  plane.until(RESOURCES.leases, `${name} holds the Lease`, (leases) =>
    leases.some(({ metadata, spec }) => metadata?.name === POOLS_LEASE && spec?.holderIdentity === name)
      ? true
      : undefined,
  );

async function addressOf(name: string): Promise<string> {
  await plane.client.create(RESOURCES.services, {
    metadata: { name, namespace: 'default' },
    spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
  });
  return await plane.until(
    RESOURCES.services,
    `${name} has an address`,
    (all) => ingressAddresses(all.find(({ metadata }) => metadata?.name === name) ?? {})[0],
  );
}

test('one of the agents assigns addresses; when it ends, another takes over, and assigns no address twice', async () => {
  const stopFirst = startAgent('node-1');
  await holder('node-1');
  const stopSecond = startAgent('node-2');
  try {
    const given = [await addressOf('a'), await addressOf('b')];
    await stopFirst();
    await holder('node-2');
    given.push(await addressOf('c'), await addressOf('d'));
    assert.equal(new Set(given).size, 4, given.join());
  } finally {
    await stopSecond();
  }
});
