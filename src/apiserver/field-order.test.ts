import assert from 'node:assert/strict';
import { test } from 'node:test';
import { orderedFields } from './field-order.ts';
import type { FieldSet } from './field-set.ts';

const leaves = (...elements: string[]): FieldSet =>
  Object.fromEntries(elements.map((element) => [element, {}]));

const ROWS: readonly [what: string, elements: readonly string[]][] = [
  ['the node itself comes before its fields, in alphabetical order', ['.', 'f:image', 'f:name']],
  ['fields come before items', ['f:z', 'k:{"name":"a"}', 'v:"a"', 'i:0']],
  ['items by their keys: numbers by value', ['k:{"port":80}', 'k:{"port":443}', 'k:{"port":8080}']],
  [
    'items by several keys: by the first that differs',
    ['k:{"port":80,"protocol":"TCP"}', 'k:{"port":80,"protocol":"UDP"}', 'k:{"port":443,"protocol":"TCP"}'],
  ],
  ['items by their values', ['v:2', 'v:10', 'v:"10"', 'v:"2"']],
];
for (const [what, elements] of ROWS) {
  test(`the order of managed fields: ${what}`, () => {
    const set = orderedFields({ 'f:spec': leaves(...elements.toReversed()) });
    assert.deepEqual(Object.keys(set['f:spec'] ?? {}), elements);
  });
}

test('a set that is in order is returned as it is', () => {
  const set = { 'f:metadata': leaves('.', 'f:labels'), 'f:spec': leaves('f:a', 'f:b') };
  assert.equal(orderedFields(set), set);
});
