import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shareByNamespace } from './follow-references.ts';

test('thousands of Secrets that one namespace names take no place from those of another', () => {
  const keys = [...Array.from({ length: 5000 }, (_, i) => `a/${i}`), 'b/one', 'c/one', 'c/two'];
  const chosen = shareByNamespace(keys, 2000);
  assert.equal(chosen.length, 2000);
  assert.equal(new Set(chosen).size, 2000);
  for (const key of ['b/one', 'c/one', 'c/two']) assert.ok(chosen.includes(key), key);
  assert.deepEqual(shareByNamespace(['b/one', 'a/one'], 2), ['b/one', 'a/one']);
});
