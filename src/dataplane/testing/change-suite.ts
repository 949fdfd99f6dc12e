import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pause, systemClock } from '../../lib/clock.ts';
import type { Frontend, ServiceOptions } from '../../service/model.ts';
import { endpoint } from './service-map.ts';
import { ALL, FAMILIES, type Policy, type ServiceScene } from './service-scene.ts';
import type { Place } from './topology.ts';

/** Tests changes of Services. `balance`: the option of one of the Services in the last change. */
export function testChangesInPlace(scene: ServiceScene, balance: ServiceOptions['balance'] = 'random'): void {
  test('changes are applied in place and yield the same state as a fresh start', async () => {
    const { service } = scene;
    await scene.sync([...service(50, ['pod1']), ...service(51, ALL)]);
    const steps = [
      [...service(50, ['pod2']), ...service(51, ALL)],
      [...service(50, ['pod2']), ...service(51, [])],
      [...service(51, ['pod1'], 'external-local', { affinitySeconds: 50 })],
      [...service(51, ['far'], 'external-local'), ...service(52, ALL, 'plain', { balance })],
      [],
    ];
    for (const frontends of steps) {
      assert.deepEqual((await scene.apply(frontends)).failed, []);
      await scene.expectVerified();
    }
  });
}

export interface LoadOptions {
  /** The clients of the two Services, 85 and 86. */
  readonly clients?: readonly (readonly [from: Place, n: number])[];
  /** The policies that the two Services change to together with their endpoints. */
  readonly policies?: readonly [Policy, Policy];
  /** Minimum number of changes during the test. */
  readonly changes?: number;
  /** Number of connections that may remain unanswered. */
  readonly silent?: number;
}

/** Tests changes while connections are opened. */
export function testChangesUnderLoad(scene: ServiceScene, options: LoadOptions = {}): void {
  const {
    clients = [
      ['pod3', 85],
      ['outside', 86],
      ['pod3', 86],
    ],
    policies: [first, second] = ['plain', 'plain'],
    changes: least = 20,
    silent = 0,
  } = options;
  test('no connection fails while endpoints are added and removed', async () => {
    const full = [...scene.service(85, ALL), ...scene.service(86, ['pod1', 'pod2'])];
    const less = [
      ...scene.service(85, ['pod1', 'far'], first),
      ...scene.service(86, ['pod2', 'far'], second),
    ];
    await scene.sync(full);
    let changing = true;
    let changes = 0;
    const change = (async () => {
      while (changing) {
        const next = ++changes % 2 === 1 ? less : full;
        await scene.apply(next);
        if (changes % (2 * least) === 0) await scene.sync(next);
        await pause(systemClock, 2);
      }
    })();
    const bad: string[] = [];
    const ask = async (from: Place, n: number) => {
      for (let i = 0; i < 150; i++) {
        const family = FAMILIES[i % 2] ?? 'ipv4';
        const answer = await scene.ask(from, 'TCP', ...scene.destination('ClusterIP', family, n));
        if (!/^(pod1|pod2|far) /.test(answer)) bad.push(answer);
      }
    };
    await Promise.all(clients.map(([from, n]) => ask(from, n)));
    changing = false;
    await change;
    assert.ok(bad.length <= silent && bad.every((answer) => answer === 'silence'), bad.join(', '));
    assert.ok(changes > least);
    await scene.expectVerified();
  });
}

/** Tests that a frontend that cannot be programmed does not affect others. */
export function testUnwritable(scene: ServiceScene): void {
  test('a frontend that cannot be programmed is reported and left out, and the others work', async () => {
    const bad = scene.service(71, ['pod1']).map(misdirected);
    const report = await scene.sync([...scene.service(70, ['pod1']), ...bad]);
    assert.deepEqual(report.failed.map(({ key }) => key).sort(), bad.map(({ key }) => key).sort());
    const to = scene.destination('ClusterIP', 'ipv4', 70);
    await scene.expectPlaces('pod3', 'TCP', to, ['pod1'], scene.proxy);
  });
}

/** Returns the frontend with an endpoint whose address is invalid. */
function misdirected(frontend: Frontend): Frontend {
  const endpoints = [endpoint('10.244.1.999', 80)];
  const routes = Object.fromEntries(
    Object.entries(frontend.routes).map(([source, route]) => [
      source,
      route.action === 'forward' ? { ...route, pool: { ...route.pool, endpoints } } : route,
    ]),
  );
  return { ...frontend, routes: routes as unknown as Frontend['routes'] };
}

/**
 * Tests that removing a mode removes its state and the state that modes share (routes to ::1 and
 * route_localnet). `make` creates objects of other programs; `check` asserts that they remain and that none
 * of the mode's remain.
 */
export function testRemoval(scene: ServiceScene, make: () => void, check: () => void): void {
  test('removing a mode removes all of its state and keeps that of other programs', async () => {
    await scene.sync(scene.service(83, ALL, 'plain', { affinitySeconds: 9 }));
    make();
    await scene.dataplane.remove();
    check();
    const { topology } = scene;
    assert.doesNotMatch(
      topology.run('node', 'ip', '-6', 'route', 'show', 'table', 'local'),
      / ::1 dev (v1|eth0)/,
    );
    assert.equal(topology.run('node', 'sysctl', '-n', 'net.ipv4.conf.all.route_localnet').trim(), '0');
  });
}
