import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseGoDuration } from './go-duration.ts';

const ROWS: readonly [text: string, expected: number | string][] = [
  ['30s', 30_000],
  ['1m30s', 90_000],
  ['1h2m3.5s', 3_723_500],
  ['-5ms', -5],
  ['+.5s', 500],
  ['0', 0],
  ['5µs', 0.005],
  ['1ns', 1e-6],
  ['', 'time: invalid duration ""'],
  ['x', 'time: invalid duration "x"'],
  ['.s', 'time: invalid duration ".s"'],
  ['10', 'time: missing unit in duration "10"'],
  ['1d', 'time: unknown unit "d" in duration "1d"'],
  ['1s2', 'time: missing unit in duration "1s2"'],
];
for (const [text, expected] of ROWS) {
  test(`the duration ${JSON.stringify(text)} is ${expected}`, () => {
    assert.deepEqual(parseGoDuration(text), typeof expected === 'number' ? expected : { problem: expected });
  });
}
