import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFailureBackoff } from './failure-backoff.ts';
import { NOW, pod } from './testing/objects.ts';

test('each failure of a place doubles the delay, and a long time without failures resets it', () => {
  let now = NOW;
  const backoff = createFailureBackoff({ now: () => now });
  const failed = pod('a', { phase: 'Failed', age: 0 });
  const pauses = [1, 2, 3, 4].map(() => {
    const left = backoff.left('node', failed);
    backoff.replaced('node');
    return left;
  });
  assert.deepEqual(pauses, [0, 1000, 2000, 4000]);
  assert.equal(backoff.left('another node', failed), 0);
  assert.equal(backoff.left('node', pod('a', { phase: 'Succeeded', age: 0 })), 0);
  now += 3_600_000;
  assert.equal(backoff.left('node', pod('b', { phase: 'Failed', age: -3600 })), 0);
});
