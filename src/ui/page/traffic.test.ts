import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EdgeView, FlowTick } from '../view.ts';
import { addTick, NO_TRAFFIC, SILENCE_S } from './traffic.ts';

const EDGE: EdgeView = {
  ...{
    client: 'default/client',
    service: 'default/web',
    endpoint: 'default/web-1',
    verdict: 'delivered' as const,
  },
  ...{ count: 10, latencyMs: 1, reason: null },
};
const tick = (extra: Partial<FlowTick> = {}): FlowTick => ({
  ...{ seconds: 1, edges: [EDGE], total: 10, omittedEdges: 0, services: { 'default/web': [10, 0] } },
  ...extra,
});
const QUIET = tick({ edges: [], total: 0, services: {} });

test('a steady rate is shown from the first tick on', () => {
  let traffic = NO_TRAFFIC;
  for (let i = 0; i < 5; i++) {
    traffic = addTick(traffic, tick());
    const [edge] = traffic.edges.values();
    assert.deepEqual(
      [edge?.rate, traffic.services.get('default/web')?.rate, traffic.total].map((n) => Math.round(n ?? 0)),
      [10, 10, 10],
    );
  }
  assert.equal(NO_TRAFFIC.edges.size, 0, 'the start of other pages is not changed');
});

test('a client that begins later: the rates of the edges add up to those of the Service and of the cluster', () => {
  const later: EdgeView = { ...EDGE, client: 'outside', count: 30 };
  const both = tick({ edges: [EDGE, later], total: 40, services: { 'default/web': [40, 0] } });
  let traffic = addTick(NO_TRAFFIC, tick());
  for (let i = 0; i < 4; i++) {
    traffic = addTick(traffic, both);
    const sum = [...traffic.edges.values()].reduce((rate, edge) => rate + edge.rate, 0);
    for (const rate of [traffic.services.get('default/web')?.rate, traffic.total])
      assert.ok(Math.abs((rate ?? 0) - sum) < 1e-6, `${rate} is not ${sum}`);
  }
});

test('an edge fades, and is gone after ten seconds of silence', () => {
  let traffic = addTick(NO_TRAFFIC, tick());
  for (let second = 1; second <= SILENCE_S; second++) traffic = addTick(traffic, QUIET);
  const [edge] = traffic.edges.values();
  assert.ok(edge && edge.rate < 1);
  traffic = addTick(traffic, QUIET);
  assert.deepEqual([traffic.edges.size, traffic.services.size, traffic.total], [0, 0, 0]);
});
