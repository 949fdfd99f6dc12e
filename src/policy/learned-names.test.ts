import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { createLearnedNames, type LearnedNames } from './learned-names.ts';
import { nameGroup } from './name-group.ts';
import {
  givenMs,
  LIFETIMES,
  MAX_ADDRESSES_OF_NAME,
  MAX_ADDRESSES_OF_POD,
  MAX_NAMES_OF_POD,
  neededMs,
} from './name-limits.ts';

const WILD = nameGroup(['*.example.com']);
const ONE = nameGroup(['api.example.com', 'api.example.org']);
const pod = (key: string, last: number, ...groups: (typeof WILD)[]) => ({
  key,
  addresses: [`10.244.1.${last}`, `fd00::${last}`],
  groups,
});
const address = (n: number) => `198.51.${n >> 8}.${n & 255}`;

let now = 0;
let learned: LearnedNames;
beforeEach(() => {
  now = 1000;
  learned = createLearnedNames({
    now: () => now,
    wallClock: () => 1_000_000 + now,
    isInside: (one) => one.startsWith('10.'),
  });
  learned.setPod('x/a', pod('x/a', 1, WILD));
});

/** Learns as if the kernel took everything. */
function learn(key: string, name: string, addresses: readonly string[], ttl = 60) {
  const learning = learned.learn(key, name, addresses, ttl);
  learning.confirm();
  return learning;
}

test('an address counts for its TTL, at least 30 s and at most an hour, rounded up by at most a third', () => {
  for (const [ttl, seconds] of [
    [0, 30],
    [30, 30],
    [47, 47],
    [60, 60],
    [3600, 3600],
    [86_400, 3600],
    [2 ** 31, 3600],
  ] as const) {
    const needed = neededMs(ttl);
    assert.equal(needed, seconds * 1000, `${ttl}`);
    const given = givenMs(needed);
    assert.ok(given > needed && given <= (needed * 4) / 3 && LIFETIMES.includes(given), `${ttl}: ${given}`);
  }
});

test('the kernel gets an address once, and again when too little of its time is left', () => {
  const { writes } = learn('x/a', 'www.example.com', [address(1)]);
  assert.deepEqual(writes, [{ group: WILD.id, pod: '10.244.1.1', address: address(1), neededMs: 62_000 }]);
  assert.deepEqual(learn('x/a', 'www.example.com', [address(1)], 50).writes, []);
  now += 20_000;
  assert.deepEqual(learn('x/a', 'www.example.com', [address(1)], 40).writes, []);
  now += 11_900;
  assert.deepEqual(learn('x/a', 'www.example.com', [address(1)], 29).writes, [], 'of a cached answer');
  now += 1000;
  assert.equal(learn('x/a', 'www.example.com', [address(1)], 28).writes.length, 1);
});

test('what the kernel did not take is written again, and does not count', () => {
  learned.learn('x/a', 'www.example.com', [address(1)], 60);
  assert.equal(learned.find('x/a', WILD.id, address(1)), null);
  assert.equal(learn('x/a', 'www.example.com', [address(1)]).writes.length, 1);
  assert.deepEqual(learned.find('x/a', WILD.id, address(1)), { name: 'www.example.com', until: 1_063_000 });
  now += 62_000;
  assert.equal(learned.find('x/a', WILD.id, address(1)), null, 'its time has ended');
});

test('addresses of other pods, names and groups are not found', () => {
  learned.setPod('x/b', pod('x/b', 2, WILD, ONE));
  learn('x/b', 'www.example.com', [address(1), 'fd01::1']);
  assert.equal(learned.find('x/a', WILD.id, address(1)), null);
  assert.equal(learned.find('x/b', ONE.id, address(1)), null);
  assert.equal(learned.find('x/b', WILD.id, 'fd01::1')?.name, 'www.example.com');
  learn('x/b', 'api.example.com', [address(2)]);
  for (const group of [WILD, ONE]) assert.ok(learned.find('x/b', group.id, address(2)));
  assert.deepEqual(learn('x/b', 'other.example.org', [address(3)]).writes, []);
  assert.deepEqual(learn('x/unknown', 'www.example.com', [address(3)]).writes, []);
});

test('addresses inside the cluster are left out', () => {
  const { inside, writes } = learn('x/a', 'www.example.com', ['10.0.0.1', address(1)]);
  assert.deepEqual(inside, ['10.0.0.1']);
  assert.deepEqual(
    writes.map((one) => one.address),
    [address(1)],
  );
});

test('the addresses of a name, the names and the addresses of a pod are bounded; expired ones do not count', () => {
  const many = (from: number, count: number) => Array.from({ length: count }, (_, i) => address(from + i));
  assert.equal(
    learn('x/a', 'big.example.com', many(0, MAX_ADDRESSES_OF_NAME + 1), 0).bound,
    'addresses of a name',
  );
  assert.equal(learn('x/a', 'big.example.com', many(5000, 1), 0).bound, 'addresses of a name');
  for (let n = 0; n < MAX_NAMES_OF_POD - 1; n++)
    assert.equal(learn('x/a', `n${n}.example.com`, [address(10_000 + n)], 0).bound, null);
  assert.equal(learn('x/a', 'more.example.com', [address(20_000)], 0).bound, 'names of a pod');
  assert.equal(
    learn('x/a', 'n1.example.com', [address(20_000), address(20_001)], 0).bound,
    'addresses of a pod',
  );
  assert.equal(learned.counts().addresses, MAX_ADDRESSES_OF_POD);
  learned.setPod('x/b', pod('x/b', 2, WILD));
  assert.equal(learn('x/b', 'more.example.com', [address(20_000)], 0).bound, null, 'another pod');
  now += 40_000;
  assert.equal(learn('x/a', 'more.example.com', [address(20_005)], 0).bound, null);
  assert.deepEqual(learned.counts(), { pods: 2, names: 2, addresses: 2 });
});

test('a pod that gets other rules keeps what their names allow; a pod that is gone, nothing', () => {
  learn('x/a', 'api.example.com', [address(1)]);
  learn('x/a', 'www.example.com', [address(2)]);
  const { gone, fresh } = learned.setPod('x/a', pod('x/a', 1, ONE));
  assert.deepEqual(
    gone.map((one) => [one.group, one.address]),
    [
      [WILD.id, address(1)],
      [WILD.id, address(2)],
    ],
  );
  assert.deepEqual(
    fresh.map((one) => [one.group, one.address]),
    [[ONE.id, address(1)]],
  );
  assert.ok(learned.find('x/a', ONE.id, address(1)));
  const left = learned.setPod('x/a', null);
  assert.deepEqual(left.gone, [{ group: ONE.id, pod: '10.244.1.1', address: address(1) }]);
  assert.deepEqual(learned.counts(), { pods: 0, names: 0, addresses: 0 });
});

test('a pod with another address keeps nothing', () => {
  learn('x/a', 'www.example.com', [address(2)]);
  const { gone } = learned.setPod('x/a', pod('x/a', 9, WILD));
  assert.deepEqual(gone, [{ group: WILD.id, pod: '10.244.1.1', address: address(2) }]);
  assert.equal(learned.find('x/a', WILD.id, address(2)), null);
});

test('an element of an earlier agent counts only for a pod with such a rule', () => {
  const element = { group: WILD.id, pod: '10.244.1.1', address: address(1) };
  assert.equal(learned.adopt({ ...element, pod: '10.244.1.9' }, 5000), false);
  assert.equal(learned.adopt({ ...element, group: ONE.id }, 5000), false);
  assert.equal(learned.adopt(element, 5000), true);
  assert.equal(learned.find('x/a', WILD.id, address(1))?.name, '');
  learned.adopt(element, 4000, ['www.example.com']);
  assert.deepEqual(learned.find('x/a', WILD.id, address(1)), { name: 'www.example.com', until: 1_006_000 });
  assert.deepEqual(
    learned.kept().map(({ pod, address: one, names, until }) => [pod, one, names, until]),
    [['x/a', address(1), ['www.example.com'], 1_006_000]],
  );
});

test('an answer does not count for the next pod with the address, nor for a family that the pod does not have', () => {
  const late = learned.learn('x/a', 'www.example.com', [address(1)], 60);
  assert.equal(late.isCurrent(), true);
  learned.setPod('x/a', null);
  learned.setPod('x/b', { ...pod('x/b', 1, WILD), addresses: ['10.244.1.1'] });
  assert.equal(late.isCurrent(), false);
  assert.equal(learned.has({ group: WILD.id, pod: '10.244.1.1', address: address(1) }), false);
  assert.deepEqual(learn('x/b', 'www.example.com', ['fd01::1']).writes, []);
  assert.equal(learned.counts().addresses, 0);
});
