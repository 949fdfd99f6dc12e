import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { createReviewCache } from './review-cache.ts';

type Step =
  /** Asks; the answer of a review, if one is made; whether one is made; and what is answered. */
  { ask: string; says: boolean | Error; reviewed: boolean; answer: boolean | string } | { wait: number };

const ALLOWED_MS = 1000;
const REFUSED_MS = 100;
const ask = (key: string, says: boolean | Error, reviewed: boolean, answer: boolean | string): Step => ({
  ask: key,
  says,
  reviewed,
  answer,
});

const ROWS: { what: string; steps: Step[] }[] = [
  {
    what: 'a permission is remembered for its time',
    steps: [
      ask('a', true, true, true),
      { wait: ALLOWED_MS - 1 },
      ask('a', false, false, true),
      { wait: 1 },
      ask('a', false, true, false),
    ],
  },
  {
    what: 'a refusal is remembered for its own',
    steps: [ask('a', false, true, false), { wait: REFUSED_MS }, ask('a', true, true, true)],
  },
  {
    what: 'a review that fails is not remembered',
    steps: [ask('a', new Error('down'), true, 'down'), ask('a', true, true, true)],
  },
  {
    what: 'keys are apart',
    steps: [ask('a', true, true, true), ask('b', false, true, false), ask('a', false, false, true)],
  },
  {
    what: 'the oldest of more than three is forgotten',
    steps: [
      ...['a', 'b', 'c', 'd'].map((key) => ask(key, true, true, true)),
      ask('b', true, false, true),
      ask('a', true, true, true),
    ],
  },
  {
    what: 'one that was made again is no longer the oldest',
    steps: [
      ask('a', false, true, false),
      ...['b', 'c'].map((key) => ask(key, true, true, true)),
      { wait: REFUSED_MS },
      ask('a', true, true, true),
      ask('d', true, true, true),
      ask('a', false, false, true),
    ],
  },
];

const options = (clock = manualClock()) => ({
  clock,
  maxKnown: 3,
  maxPending: 2,
  tooMany: () => new Error('too many'),
});
const msOf = (isAllowed: boolean) => (isAllowed ? ALLOWED_MS : REFUSED_MS);

for (const { what, steps } of ROWS) {
  test(`reviews: ${what}`, async () => {
    const clock = manualClock();
    const cache = createReviewCache(options(clock));
    for (const [i, step] of steps.entries()) {
      if ('wait' in step) {
        clock.advance(step.wait);
        continue;
      }
      let isReviewed = false;
      const review = async () => {
        isReviewed = true;
        if (step.says instanceof Error) throw step.says;
        return step.says;
      };
      const answer = await cache.remember(step.ask, review, msOf).catch(messageOf);
      assert.deepEqual([answer, isReviewed], [step.answer, step.reviewed], `step ${i}`);
    }
  });
}

test('reviews: equal ones at the same time are one, however long it lasts, and others are limited', async () => {
  const clock = manualClock();
  const cache = createReviewCache(options(clock));
  const open: ((isAllowed: boolean) => void)[] = [];
  const review = () => new Promise<boolean>((resolve) => open.push(resolve));
  const answers = ['a', 'a', 'b'].map((key) => cache.remember(key, review, msOf));
  clock.advance(10 * ALLOWED_MS);
  answers.push(cache.remember('a', review, msOf));
  await assert.rejects(cache.remember('c', review, msOf), /too many/);
  assert.equal(open.length, 2);
  for (const end of open) end(true);
  assert.deepEqual(await Promise.all(answers), [true, true, true, true]);
  assert.equal(await cache.remember('c', async () => true, msOf), true);
});
