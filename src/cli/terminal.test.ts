import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { paint, showProgress } from './terminal.ts';

for (const [what, columns, environment, text] of [
  ['on a terminal', 80, {}, '\u001b[31mREJECTED\u001b[0m'],
  ['in a pipe', null, {}, 'REJECTED'],
  ['with NO_COLOR', 80, { NO_COLOR: '1' }, 'REJECTED'],
] as const)
  test(`a verdict ${what}`, () => assert.equal(paint({ columns }, 'bad', 'REJECTED', environment), text));

test('progress is shown after half a second, follows the work, and is erased', () => {
  const clock = manualClock(0);
  const written: string[] = [];
  let done = 0;
  const output = { interactive: true, err: (text: string) => written.push(text) };
  const progress = showProgress(output, clock, () => `${++done} of 3`);
  clock.advance(499);
  assert.deepEqual(written, []);
  clock.advance(1);
  clock.advance(250);
  progress.hide();
  progress.hide();
  progress.end();
  clock.advance(10_000);
  assert.deepEqual(written, ['\r\u001b[K1 of 3', '\r\u001b[K2 of 3', '\r\u001b[K']);
});

test('without a terminal no progress is shown', () => {
  const clock = manualClock(0);
  const output = { interactive: false, err: () => assert.fail('written') };
  const progress = showProgress(output, clock, () => 'x');
  clock.advance(10_000);
  progress.hide();
  progress.end();
});
