import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pause, systemClock } from '../../lib/clock.ts';
import type { FrontendKind } from '../../service/model.ts';
import { ALL, FAMILIES, type ServiceScene } from './service-scene.ts';
import type { Place } from './topology.ts';

/** Tests affinity with hundreds of clients, each with a separate address. */
export function testManyClients(scene: ServiceScene): void {
  test('hundreds of clients each keep their endpoint', async () => {
    const { topology } = scene;
    await scene.sync(scene.service(41, ALL, 'plain', { affinitySeconds: 100 }));
    for (const family of FAMILIES) {
      const to = scene.destination('ClusterIP', family, 41);
      const first = await topology.ask('pod3', 'TCP', ...to);
      for (let i = 0; i < 15; i++) assert.equal(await topology.ask('pod3', 'TCP', ...to), first);
    }
    const clients = Array.from({ length: 330 }, (_, i) => `10.244.${i < 250 ? 7 : 8}.${i % 250}`);
    topology.configure('pod3', ...clients.map((client) => `addr add ${client}/32 dev lo`));
    topology.configure('node', 'route add 10.244.7.0/24 dev v3', 'route add 10.244.8.0/24 dev v3');
    const to = scene.destination('ClusterIP', 'ipv4', 41);
    const firsts: string[] = [];
    for (const client of clients) firsts.push(await topology.ask('pod3', 'UDP', ...to, client));
    assert.equal(new Set(firsts.map((answer) => answer.split(' ')[0])).size, ALL.length);
    for (const [i, client] of clients.entries()) {
      assert.equal(await topology.ask('pod3', 'UDP', ...to, client), firsts[i]);
    }
    await scene.expectVerified();
  });
}

export function testAffinityToLostEndpoint(scene: ServiceScene): void {
  test('affinity ends when its endpoint is removed', async () => {
    const sticky = (places: readonly Place[]) => scene.service(84, places, 'plain', { affinitySeconds: 100 });
    await scene.sync(sticky(ALL));
    const first = await placeOf(scene, 'outside', 'NodePort', 84);
    for (let i = 0; i < 5; i++) assert.equal(await placeOf(scene, 'outside', 'NodePort', 84), first);
    const rest = ALL.filter((place) => place !== first);
    await scene.apply(sticky(rest));
    const second = await placeOf(scene, 'outside', 'NodePort', 84);
    assert.ok(rest.includes(second), `${second} after ${first} was removed`);
    for (let i = 0; i < 5; i++) assert.equal(await placeOf(scene, 'outside', 'NodePort', 84), second);
  });
}

export function testAffinityTime(scene: ServiceScene, from: Place, kind: FrontendKind): void {
  test('affinity ends after its timeout', async () => {
    await scene.sync(scene.service(42, ALL, 'plain', { affinitySeconds: 1 }));
    const seen = new Set<Place>();
    for (let i = 0; i < 12 && seen.size < 2; i++) {
      if (i > 0) await pause(systemClock, 1100);
      seen.add(await placeOf(scene, from, kind, 42));
    }
    assert.equal(seen.size, 2, 'after the timeout a client may reach another endpoint');
  });
}

/** Tests that Services and their affinity outlive the process that programmed them. */
export function testRestart(scene: ServiceScene): void {
  test('a restart does not interrupt traffic, and clients keep their endpoints', async () => {
    const frontends = scene.service(87, ALL, 'plain', { affinitySeconds: 100 });
    await scene.sync(frontends);
    const ask = () => scene.ask('pod3', 'TCP', ...scene.destination('ClusterIP', 'ipv4', 87));
    const first = await ask();
    await scene.dataplane.close();
    for (let i = 0; i < 5; i++) assert.equal(await ask(), first);
    scene.reopen();
    await scene.sync(frontends);
    for (let i = 0; i < 8; i++) assert.equal(await ask(), first);
    await scene.expectVerified();
  });
}

async function placeOf(scene: ServiceScene, from: Place, kind: FrontendKind, n: number): Promise<Place> {
  const answer = await scene.ask(from, 'TCP', ...scene.destination(kind, 'ipv4', n));
  return answer.split(' ')[0] as Place;
}
