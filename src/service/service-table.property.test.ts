import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compile } from './compile.ts';
import { decide } from './decide.ts';
import { diff, snapshot } from './diff.ts';
import { endpointKey } from './endpoint-key.ts';
import type { Change, Frontend, ServiceMap } from './model.ts';
import { applyEdit, randomCluster, serviceTableOf } from './testing/random-cluster.ts';

const CLUSTERS = 30;
/** A full run repeats them longer: most of the time is the comparison with a full compile. */
const EDITS = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 60 : 20;

test('incremental commits yield the same map as a full compile, and the exact changes between maps', () => {
  for (let seed = 1; seed <= CLUSTERS; seed++) {
    const cluster = randomCluster(seed);
    const table = serviceTableOf(cluster);
    let before: ServiceMap | null = null;
    for (let round = 0; round < EDITS; round++) {
      const { map, change } = table.commit();
      const after = snapshot(map);
      const fresh = compile({
        node: cluster.node,
        services: cluster.services.values(),
        slices: cluster.slices.values(),
        ejected: cluster.ejected,
      });
      assert.deepEqual(after, fresh, `seed ${seed} round ${round}`);
      assert.deepEqual(sorted(change), sorted(diff(before, fresh)), `seed ${seed} round ${round}`);
      if (before) assertSharing(before, after, change);
      before = after;
      for (let i = 0; i < 1 + (round % 3); i++) applyEdit(table, cluster.edit());
    }
  }
});

test('the result does not depend on the order in which objects arrive', () => {
  for (let seed = 1; seed <= CLUSTERS; seed++) {
    const cluster = randomCluster(seed);
    const objects = {
      node: cluster.node,
      services: [...cluster.services.values()],
      slices: [...cluster.slices.values()],
    };
    const backwards = {
      node: cluster.node,
      services: [...objects.services].reverse(),
      slices: [...objects.slices].reverse(),
    };
    assert.deepEqual(compile(objects), compile(backwards), `seed ${seed}`);
  }
});

test('every packet has a verdict whose odds add up to 1 and whose endpoints are those of the route', () => {
  for (let seed = 1; seed <= CLUSTERS; seed++) {
    const cluster = randomCluster(seed);
    for (let i = 0; i < 40; i++) cluster.edit();
    const map = compile({
      node: cluster.node,
      services: cluster.services.values(),
      slices: cluster.slices.values(),
      ejected: cluster.ejected,
    });
    for (let i = 0; i < 200; i++) {
      const packet = cluster.packet(map);
      const verdict = decide(map, packet);
      const odds = verdict.candidates.reduce((sum, candidate) => sum + candidate.odds, 0);
      assert.ok(
        verdict.action === 'forward' ? Math.abs(odds - 1) < 1e-9 : odds === 0,
        JSON.stringify(packet),
      );
      if (verdict.action !== 'forward') continue;
      assert.ok(verdict.frontend);
      const route = verdict.frontend.routes[packet.sourceClass];
      assert.ok(route.action === 'forward' && route.pool.endpoints.length === verdict.candidates.length);
    }
  }
});

test('pools are not empty, contain no duplicates, and are ordered', () => {
  for (let seed = 1; seed <= CLUSTERS; seed++) {
    const cluster = randomCluster(seed);
    const map = compile({
      node: cluster.node,
      services: cluster.services.values(),
      slices: cluster.slices.values(),
    });
    const ids = new Map<string, unknown>();
    for (const frontend of map.frontends.values()) {
      for (const pool of poolsOf(frontend)) {
        assert.ok(pool.endpoints.length > 0, pool.id);
        const keys = pool.endpoints.map(({ ip, port }) => endpointKey(ip, port, 'TCP'));
        assert.equal(new Set(keys).size, keys.length, pool.id);
        assert.equal(ids.get(pool.id) ?? pool, pool, `two pools have the id ${pool.id}`);
        ids.set(pool.id, pool);
      }
    }
  }
});

/** Objects that the change does not list are the same as in the previous map. */
function assertSharing(before: ServiceMap, after: ServiceMap, change: Change): void {
  const changed = new Set(change.frontends.map(({ key }) => key));
  for (const [key, frontend] of after.frontends) {
    if (!changed.has(key)) assert.equal(before.frontends.get(key), frontend, key);
  }
}

function poolsOf({ routes }: Frontend) {
  return [routes.pod, routes.node, routes.external].flatMap((route) =>
    route.action === 'forward' ? [route.pool] : [],
  );
}

function sorted(change: Change): Change {
  const by = (a: { key: string }, b: { key: string }) => (a.key < b.key ? -1 : 1);
  const lists = (part: Change['clusterIPs']) => ({
    added: [...part.added].sort(),
    removed: [...part.removed].sort(),
  });
  return {
    ...change,
    frontends: [...change.frontends].sort(by),
    healthChecks: [...change.healthChecks].sort(by),
    clusterIPs: lists(change.clusterIPs),
    hairpinAddresses: lists(change.hairpinAddresses),
  };
}
