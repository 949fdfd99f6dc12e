import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonPatch } from './kustomize-files.ts';

const ROWS: { what: string; before: unknown; after: unknown; patch: unknown[] }[] = [
  { what: 'equal objects', before: { a: [1] }, after: { a: [1] }, patch: [] },
  {
    what: 'fields that are added, changed and removed',
    before: { a: 1, b: { c: 2 }, d: 3 },
    after: { a: 1, b: { c: 4 }, e: 5 },
    patch: [
      { op: 'replace', path: '/b/c', value: 4 },
      { op: 'remove', path: '/d' },
      { op: 'add', path: '/e', value: 5 },
    ],
  },
  {
    what: 'a name with characters of paths',
    before: {},
    after: { 'a/b~c': 1 },
    patch: [{ op: 'add', path: '/a~1b~0c', value: 1 }],
  },
  {
    what: 'elements between others',
    before: ['a', 'd'],
    after: ['a', 'b', 'c', 'd', 'e'],
    patch: [
      { op: 'add', path: '/1', value: 'b' },
      { op: 'add', path: '/2', value: 'c' },
      { op: 'add', path: '/4', value: 'e' },
    ],
  },
  {
    what: 'elements that are gone: the last one first',
    before: ['a', 'b', 'c', 'd'],
    after: ['a', 'c'],
    patch: [
      { op: 'remove', path: '/3' },
      { op: 'remove', path: '/1' },
    ],
  },
  {
    what: 'an element that changed',
    before: [{ a: 1 }, { b: 2 }],
    after: [{ a: 1 }, { b: 3 }],
    patch: [{ op: 'replace', path: '/1/b', value: 3 }],
  },
  {
    what: 'another list',
    before: ['a', 'b'],
    after: ['c'],
    patch: [{ op: 'replace', path: '', value: ['c'] }],
  },
];

for (const { what, before, after, patch } of ROWS) {
  test(`a JSON patch: ${what}`, () => assert.deepEqual(jsonPatch(before, after), patch));
}
