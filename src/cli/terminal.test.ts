import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { withoutControls } from './control-characters.ts';
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

for (const [what, text, shown] of [
  ['lines and columns', 'a\tb\nc\n', 'a\tb\nc\n'],
  ['letters of other languages', 'größe ✓ 名', 'größe ✓ 名'],
  ['colours of verdicts', '\u001b[32m✓\u001b[0m', '\u001b[32m✓\u001b[0m'],
  ['the progress line', '\r\u001b[K1 of 3', '\r\u001b[K1 of 3'],
  ['a message that sets the title of the window', '\u001b]0;x\u0007', '\\x1b]0;x\\x07'],
  ['a message that moves up and erases lines', 'no\u001b[1A\u001b[2Kyes', 'no\\x1b[1A\\x1b[2Kyes'],
  ['a message that begins its line again', 'bad\rgood', 'bad\\x0dgood'],
  ['a sequence in one character (C1)', '\u009b2J', '\\x9b2J'],
] as const)
  test(`on a terminal: ${what}`, () => assert.equal(withoutControls(text), shown));
