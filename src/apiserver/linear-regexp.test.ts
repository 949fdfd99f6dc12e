import assert from 'node:assert/strict';
import { test } from 'node:test';
import { matches } from './custom-resources/validate-value.ts';
import { matchInLinearTime } from './linear-regexp.ts';

test('a pattern with exponential backtracking is evaluated in linear time', () => {
  matchInLinearTime();
  // By backtracking alone this takes 2^60 steps: the test would not end.
  assert.equal(matches('^(a+)+$', `${'a'.repeat(60)}!`), false);
});
