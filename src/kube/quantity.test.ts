import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseQuantity } from './quantity.ts';

for (const [text, number] of [
  ['100m', 0.1],
  ['1Gi', 2 ** 30],
  ['1e3', 1000],
  ['2k', 2000],
  ['64Mi', 64 * 2 ** 20],
  ['', Number.NaN],
  ['x', Number.NaN],
  ['1Zi', Number.NaN],
] as const) {
  test(`the quantity ${JSON.stringify(text)}`, () => assert.equal(parseQuantity(text), number));
}
