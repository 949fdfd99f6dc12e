import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hostPort } from '../../lib/address.ts';
import { manualClock } from '../../lib/clock.ts';
import { endpoint } from '../testing/service-map.ts';
import { createBalancer } from './balancer.ts';

const [A, B, C] = [endpoint('10.0.0.1', 80), endpoint('10.0.0.2', 80), endpoint('fd00::3', 80)];

function balancerOf(
  endpoints = [A, B, C],
  options: { affinitySeconds?: number; failover?: boolean; random?: number } = {},
) {
  const clock = manualClock(1_000_000);
  const balancer = createBalancer({ clock, random: () => options.random ?? 0 });
  const { affinitySeconds = null, failover = true } = options;
  const configure = (list: typeof endpoints) =>
    balancer.configure({ endpoints: list, affinitySeconds, failover });
  configure(endpoints);
  /** Connects a client to the first endpoint that is not dead. */
  const connect = (client = 'c', dead: readonly (typeof A)[] = []) => {
    for (const candidate of balancer.candidates(client)) {
      if (dead.includes(candidate)) {
        balancer.failed(candidate);
        continue;
      }
      balancer.answered(candidate);
      balancer.bind(client, candidate);
      return candidate;
    }
    return null;
  };
  return { balancer, clock, configure, connect };
}

const times = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

test('connections go to the endpoints in turn', () => {
  const { connect } = balancerOf();
  assert.deepEqual(
    times(7, () => connect()),
    [A, B, C, A, B, C, A],
  );
});

test('the first endpoint is random', () => {
  assert.equal(balancerOf([A, B, C], { random: 0.4 }).connect(), B);
  assert.equal(balancerOf([A, B, C], { random: 0.99 }).connect(), C);
});

test('every endpoint is a candidate exactly once', () => {
  const { balancer } = balancerOf();
  balancer.failed(A);
  for (let i = 0; i < 5; i++) {
    assert.deepEqual([...balancer.candidates('c')].map(hostPort).sort(), [A, B, C].map(hostPort).sort());
  }
});

test('two live endpoints share the connections of a dead one', () => {
  const { connect } = balancerOf();
  const counts = new Map<unknown, number>();
  for (const taken of times(100, () => connect('c', [A]))) counts.set(taken, (counts.get(taken) ?? 0) + 1);
  assert.equal(counts.get(B), 50);
  assert.equal(counts.get(C), 50);
});

test('an endpoint that failed is tried last for five seconds', () => {
  const { balancer, clock, connect } = balancerOf();
  balancer.failed(A);
  assert.deepEqual([...balancer.candidates('c')], [B, C, A]);
  clock.advance(4999);
  assert.ok(!times(4, () => connect()).includes(A));
  clock.advance(1);
  assert.ok(times(3, () => connect()).includes(A));
});

test('an endpoint that answers after a failure is used like the others again', () => {
  const { balancer, connect } = balancerOf();
  balancer.failed(A);
  balancer.answered(A);
  assert.ok(times(3, () => connect()).includes(A));
});

test('if all have failed, all are tried', () => {
  const { balancer, connect } = balancerOf();
  for (const one of [A, B, C]) balancer.failed(one);
  assert.deepEqual([...balancer.candidates('c')], [A, B, C]);
  assert.notEqual(connect(), null);
});

test('without failover failed endpoints are not tried last', () => {
  const { balancer } = balancerOf([A, B, C], { failover: false });
  balancer.failed(A);
  assert.deepEqual([...balancer.candidates('c')], [A, B, C]);
});

test('a pool without endpoints has no candidates', () => {
  const { connect, configure } = balancerOf([]);
  assert.equal(connect(), null);
  configure([A]);
  assert.equal(connect(), A);
});

test('a client with affinity returns to its endpoint, others go to the endpoints in turn', () => {
  const { connect } = balancerOf([A, B, C], { affinitySeconds: 10 });
  assert.equal(connect('one'), A);
  assert.equal(connect('two'), B);
  assert.deepEqual(
    times(5, () => connect('one')),
    [A, A, A, A, A],
  );
  assert.equal(connect('three'), C);
});

test('the affinity timeout starts with the last new connection', () => {
  const { connect, clock } = balancerOf([A, B, C], { affinitySeconds: 10 });
  assert.equal(connect('one'), A);
  clock.advance(9000);
  assert.equal(connect('one'), A);
  clock.advance(9000);
  assert.equal(connect('one'), A);
  clock.advance(10_000);
  assert.equal(connect('one'), B);
});

test('a client whose endpoint was removed gets another one and keeps it', () => {
  const { connect, configure } = balancerOf([A, B, C], { affinitySeconds: 10 });
  assert.equal(connect('one'), A);
  configure([B, C]);
  const next = connect('one');
  assert.notEqual(next, A);
  configure([A, B, C]);
  assert.equal(connect('one'), next);
});

test('a client whose endpoint is dead gets another one and keeps it', () => {
  const { connect } = balancerOf([A, B, C], { affinitySeconds: 10 });
  assert.equal(connect('one'), A);
  const next = connect('one', [A]);
  assert.notEqual(next, A);
  assert.equal(connect('one'), next);
});

test('turning affinity off ends it for all clients', () => {
  const { balancer, connect } = balancerOf([A, B, C], { affinitySeconds: 10 });
  assert.equal(connect('one'), A);
  balancer.configure({ endpoints: [A, B, C], affinitySeconds: null, failover: true });
  assert.deepEqual(
    times(3, () => connect('one')),
    [B, C, A],
  );
});

test('the pool may change while a connection looks for an endpoint', () => {
  const { balancer, configure } = balancerOf();
  const candidates = balancer.candidates('c');
  assert.equal(candidates.next().value, A);
  configure([B]);
  assert.equal(candidates.next().value, B);
  assert.equal(candidates.next().value, C);
  assert.ok(candidates.next().done);
});
