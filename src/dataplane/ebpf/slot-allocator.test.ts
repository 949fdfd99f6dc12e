import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { createRandom } from '../../service/testing/random.ts';
import { type Run, SlotAllocator } from './slot-allocator.ts';

test('sizes of runs are powers of two', () => {
  const sizes = [1, 2, 3, 4, 5, 8, 9, 1000].map((count) => SlotAllocator.sizeOf(count));
  assert.deepEqual(sizes, [1, 2, 4, 4, 8, 8, 16, 1024]);
});

test('no slot is in two runs, and released runs are reused after a while', () => {
  const clock = manualClock(1000);
  const random = createRandom(7);
  const runs = new SlotAllocator(1024, clock);
  const held: Run[] = [];
  for (let i = 0; i < 5000; i++) {
    clock.advance(random.integer(40));
    if (held.length > 0 && random.chance(0.5)) {
      const [run] = held.splice(random.integer(held.length), 1);
      if (run) runs.release(run);
    } else {
      const run = runs.allocate(1 + random.integer(24));
      if (run) held.push(run);
    }
    const taken = new Set<number>();
    for (const { first, size } of held) for (let at = first; at < first + size; at++) taken.add(at);
    assert.equal(
      taken.size,
      held.reduce((sum, { size }) => sum + size, 0),
    );
    assert.ok([...taken].every((at) => at >= 0 && at < 1024));
  }
});

test('a released run is not reused at once', () => {
  const clock = manualClock(1000);
  const runs = new SlotAllocator(4, clock);
  const run = runs.allocate(4);
  assert.ok(run);
  runs.release(run);
  assert.equal(runs.allocate(4), null);
  clock.advance(200);
  assert.deepEqual(runs.allocate(4), run);
});

test('slots in use are reserved once, and never allocated', () => {
  const runs = new SlotAllocator(64, manualClock());
  assert.ok(runs.reserve({ first: 16, size: 8 }));
  assert.ok(runs.reserve({ first: 0, size: 1 }));
  assert.ok(!runs.reserve({ first: 16, size: 8 }), 'already in use');
  assert.ok(!runs.reserve({ first: 20, size: 4 }), 'inside a run in use');
  const taken = new Set<number>();
  for (let run = runs.allocate(1); run; run = runs.allocate(1)) taken.add(run.first);
  assert.equal(taken.size, 64 - 9);
  for (const at of [0, 16, 23]) assert.ok(!taken.has(at));
});
