import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readWrittenJson, writtenJson } from './written-json.ts';

const VALUE = { name: 'node-1', list: [1, null], nested: { on: true } };

for (const [what, text, value] of [
  ['what was written', writtenJson(VALUE), VALUE],
  ['JSON of another form', JSON.stringify(VALUE), undefined],
  ['JSON with duplicate keys', '{\n  "a": 1,\n  "a": 2\n}\n', undefined],
  ['YAML', 'name: node-1\n', undefined],
  ['a damaged file', writtenJson(VALUE).slice(0, 20), undefined],
] as const) {
  test(`reads ${what} as ${value === undefined ? 'nothing' : 'its value'}`, () => {
    assert.deepEqual(readWrittenJson(text), value);
  });
}
