import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { createSampling } from './event-sampling.ts';

test('the share is halved while there are too many events, and doubled when there are few', () => {
  const clock = manualClock();
  const seen: [mask: number, isNarrower: boolean][] = [];
  const sampling = createSampling({
    clock,
    changed: (...[mask, isNarrower]) => seen.push([mask, isNarrower]),
  });
  const second = (events: number) => {
    for (let i = 0; i < events; i++) sampling.count();
    clock.advance(1000);
    sampling.adapt();
  };
  second(5000);
  assert.deepEqual(seen, []);
  second(5001);
  second(5001);
  second(3000);
  assert.equal(sampling.mask, 3);
  second(10);
  second(0);
  second(0);
  assert.deepEqual(seen, [
    [1, true],
    [3, true],
    [1, false],
    [0, false],
  ]);
});

test('events of less than a second change nothing', () => {
  const clock = manualClock();
  const sampling = createSampling({ clock, changed: () => assert.fail('changed') });
  for (let i = 0; i < 20_000; i++) sampling.count();
  clock.advance(999);
  sampling.adapt();
  assert.equal(sampling.mask, 0);
});
