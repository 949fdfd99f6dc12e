import assert from 'node:assert/strict';
import { test } from 'node:test';
import { subordinateRange } from './id-map-files.ts';

const CASES: readonly (readonly [name: string, text: string, expected: object | null])[] = [
  ['by name', 'root:1:65536\nann:100000:65536\n', { start: 100_000, count: 65_536 }],
  ['by number', '1000:200000:65536\n', { start: 200_000, count: 65_536 }],
  ['too few ids', 'ann:100000:1000\n', null],
  ['a later range of enough ids', 'ann:100000:1000\nann:300000:70000\n', { start: 300_000, count: 70_000 }],
  ['of another user', 'bob:100000:65536\n', null],
  ['malformed lines', 'ann\nann:x:65536\nann:100000:\n:::\n', null],
  ['an empty file', '', null],
];

for (const [name, text, expected] of CASES) {
  test(`the range of a user in /etc/subuid: ${name}`, () => {
    assert.deepEqual(subordinateRange(text, 'ann', 1000), expected);
  });
}
