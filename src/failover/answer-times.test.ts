import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../lib/clock.ts';
import { createAnswerTimes } from './answer-times.ts';

const MINUTE = 60_000;
const A = '10.1.0.1:80/TCP';
const B = '10.1.0.2:80/TCP';
const C = '10.1.0.3:80/TCP';

/** An answer of an endpoint after `after` more milliseconds. */
type Step = readonly [endpoint: string, isFast: boolean, after?: number];

const times = (count: number, endpoint: string, isFast: boolean): Step[] =>
  Array.from({ length: count }, () => [endpoint, isFast]);

const rows: readonly [what: string, steps: readonly Step[], later: number, fast: readonly string[]][] = [
  ['an endpoint without answers', [], 0, []],
  ['one fast answer is not enough', times(1, A, true), 0, []],
  ['two fast answers', times(2, A, true), 0, [A]],
  ['answers of several endpoints', [...times(2, A, true), ...times(1, B, true)], 0, [A]],
  ['a slow answer after a few fast ones', [...times(3, A, true), ...times(1, A, false)], 0, []],
  ['a slow answer after many fast ones', [...times(9, A, true), ...times(1, A, false)], 0, [A]],
  ['two slow answers', [...times(99, A, true), ...times(2, A, false)], 0, []],
  ['fast again', [...times(9, A, true), ...times(3, A, false), ...times(2, A, true)], 0, [A]],
  ['nine minutes later', times(2, A, true), 9 * MINUTE, [A]],
  ['eleven minutes later', times(2, A, true), 11 * MINUTE, []],
  ['a later answer counts', [...times(2, A, true), [A, true, 9 * MINUTE]], 9 * MINUTE, [A]],
  [
    'the endpoint that answered longest ago is dropped',
    [...times(2, A, true), ...times(2, B, true), ...times(1, A, true), ...times(2, C, true)],
    0,
    [A, C],
  ],
];
for (const [what, steps, later, expected] of rows)
  test(what, () => {
    let now = 0;
    const clock: Clock = { now: () => now, after: () => () => {} };
    const answers = createAnswerTimes(clock, 2);
    for (const [endpoint, isFast, after = 0] of steps) {
      now += after;
      answers.answered(endpoint, isFast);
    }
    now += later;
    assert.deepEqual(
      [A, B, C].filter((endpoint) => answers.isFast(endpoint)),
      expected,
    );
  });

test('an endpoint that is known to be slow must answer fast again', () => {
  const answers = createAnswerTimes({ now: () => 0, after: () => () => {} });
  for (const [endpoint, isFast] of times(9, A, true)) answers.answered(endpoint, isFast);
  answers.forget(A);
  answers.answered(A, true);
  assert.equal(answers.isFast(A), false);
  answers.answered(A, true);
  assert.equal(answers.isFast(A), true);
});
