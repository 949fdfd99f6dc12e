import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSourceShare } from './source-share.ts';

const LIMITS = { perSecond: 100, burst: 10, maxWaiting: 2, maxSources: 20 };

function share(limits: Partial<typeof LIMITS> = {}) {
  let time = 0;
  const dropped: (string | number)[] = [];
  const made = createSourceShare(
    { ...LIMITS, ...limits },
    () => time,
    (source) => dropped.push(source),
  );
  const admitted = (source: string, count: number) =>
    Array.from({ length: count }, () => made.admit(source)).filter(Boolean).length;
  return { ...made, admitted, dropped, advance: (ms: number) => (time += ms) };
}

test('a client has a burst, and then its rate; the queries above are dropped and counted', () => {
  const { admitted, advance, dropped } = share();
  assert.equal(admitted('a', 30), 10);
  advance(50);
  assert.equal(admitted('a', 30), 5);
  assert.equal(dropped.length, 45);
});

test('the flood of one client takes nothing of another', () => {
  const { admitted, advance } = share();
  for (let i = 0; i < 100; i++) {
    admitted('flood', 1000);
    advance(10);
    assert.equal(admitted('other', 1), 1);
  }
});

test('a client with many queries that wait for an upstream gets no more of them', () => {
  const { admitted, wait } = share();
  for (let i = 0; i < 2; i++) wait('a', 1);
  assert.equal(admitted('a', 1), 1, 'a client that is not known yet');
  for (let i = 0; i < 2; i++) wait('a', 1);
  assert.equal(admitted('a', 1), 0);
  assert.equal(admitted('b', 1), 1);
  wait('a', -1);
  assert.equal(admitted('a', 1), 1);
});

test('new clients make room for themselves, and a busy one is not forgotten', () => {
  const { admitted, advance } = share();
  assert.equal(admitted('flood', 10), 10);
  for (let i = 0; i < 200; i++) {
    advance(0.01);
    assert.equal(admitted('flood', 1), 0);
    admitted(`client ${i}`, 1);
  }
});
