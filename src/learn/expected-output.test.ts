import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missingLines } from './expected-output.ts';

const OUTPUT = 'service/shop exposed\n  shop-1  11  55 %\nshop-2  9  45 %\nDELIVERED: a → b\n';
const ROWS: readonly (readonly [what: string, expected: string[], missing: string[]])[] = [
  ['nothing expected', [], []],
  ['whole lines in order', ['service/shop exposed', 'shop-1  11  55 %'], []],
  ['a part of a line', ['service/shop'], ['service/shop']],
  ['any text at the end', ['DELIVERED…'], []],
  ['any text on both sides', ['…-2 …'], []],
  ['any text, and nothing for it', ['service/…shop exposed'], []],
  ['parts in another order', ['…45…shop…'], ['…45…shop…']],
  ['parts that would overlap', ['DELIVERED: a → b…b'], ['DELIVERED: a → b…b']],
  ['lines in another order', ['shop-2…', 'shop-1…'], ['shop-1…']],
  ['the same line twice', ['shop-…', 'shop-…', 'shop-…'], ['shop-…']],
];
for (const [what, expected, missing] of ROWS)
  test(`expected output: ${what}`, () => assert.deepEqual(missingLines(OUTPUT, expected), missing));

test('a long line, and a pattern that a regular expression would take hours for', () => {
  const line = 'a'.repeat(60_000);
  assert.deepEqual(missingLines(line, [`${'…a'.repeat(200)}…b`]).length, 1);
});
