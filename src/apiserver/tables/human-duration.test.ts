import assert from 'node:assert/strict';
import { test } from 'node:test';
import { humanDuration } from './human-duration.ts';

test('ages', async (t) => {
  const second = 1000;
  const minute = 60 * second;
  const hour = 60 * minute;
  const day = 24 * hour;
  const rows: [milliseconds: number, expected: string][] = [
    [-5 * second, '<invalid>'],
    [-1500, '0s'],
    [999, '0s'],
    [119 * second, '119s'],
    [2 * minute, '2m'],
    [9 * minute + 59 * second, '9m59s'],
    [10 * minute + 59 * second, '10m'],
    [179 * minute, '179m'],
    [3 * hour, '3h'],
    [7 * hour + 59 * minute, '7h59m'],
    [47 * hour, '47h'],
    [2 * day, '2d'],
    [7 * day + 23 * hour, '7d23h'],
    [8 * day + 23 * hour, '8d'],
    [729 * day, '729d'],
    [731 * day, '2y1d'],
    [8 * 365 * day + day, '8y'],
  ];
  for (const [milliseconds, expected] of rows) {
    await t.test(expected, () => assert.equal(humanDuration(milliseconds), expected));
  }
});
