import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isFormat } from './formats.ts';

const hostnames: readonly [text: string, isOne: boolean][] = [
  ['web', true],
  ['web.example.com', true],
  ['web.example.com.', true],
  ['a-b_c.1', true],
  ['', false],
  ['.', false],
  ['.web', false],
  ['web..com', false],
  ['-web', false],
  ['web-', false],
  ['we b', false],
  ['x'.repeat(256), false],
  // An expression with nested repetitions does not end on these.
  [`${'a'.repeat(200)}!`, false],
  [`${'a-'.repeat(100)}!`, false],
  [`${'a.'.repeat(100)}!`, false],
];
for (const [text, isOne] of hostnames)
  test(`${JSON.stringify(text)} is ${isOne ? 'a' : 'not a'} hostname`, () =>
    assert.equal(isFormat('hostname', text), isOne));
