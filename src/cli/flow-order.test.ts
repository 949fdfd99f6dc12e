import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFlowOrder } from './flow-order.ts';

test('entries are shown in the order of their times once they have waited', () => {
  let now = 0;
  const shown: number[] = [];
  const order = createFlowOrder<number>({
    timeOf: (entry) => entry,
    show: (entry) => shown.push(entry),
    now: () => now,
    holdMs: 600,
  });
  order.add(1000);
  now = 300;
  order.add(900);
  order.release();
  assert.deepEqual(shown, []);
  now = 600;
  order.release();
  assert.deepEqual(shown, [900, 1000], 'the earlier one came later');
  order.add(1300);
  order.add(1200);
  order.flush();
  assert.deepEqual(shown, [900, 1000, 1200, 1300]);
});

test('entries are bounded in number', () => {
  const shown: number[] = [];
  const order = createFlowOrder<number>({
    timeOf: (entry) => entry,
    show: (entry) => shown.push(entry),
    now: () => 0,
    holdMs: 600,
  });
  for (let i = 0; i <= 20_000; i++) order.add(i);
  assert.equal(shown.length, 10_000);
});
