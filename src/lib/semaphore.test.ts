import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSemaphore } from './semaphore.ts';

test('two tasks run at once, the others in order of arrival, even after failures', async () => {
  const semaphore = createSemaphore(2);
  const begun: number[] = [];
  const ends: PromiseWithResolvers<void>[] = [];
  const works = [0, 1, 2, 3].map((n) =>
    semaphore.run(async () => {
      begun.push(n);
      const end = Promise.withResolvers<void>();
      ends[n] = end;
      await end.promise;
      return n;
    }),
  );
  const settled = Promise.allSettled(works);
  const look = () => new Promise((resolve) => setImmediate(resolve));
  await look();
  assert.deepEqual(begun, [0, 1]);
  ends[1]?.reject(new Error('no'));
  await look();
  assert.deepEqual(begun, [0, 1, 2]);
  ends[0]?.resolve();
  ends[2]?.resolve();
  await look();
  assert.deepEqual(begun, [0, 1, 2, 3]);
  ends[3]?.resolve();
  assert.deepEqual(
    (await settled).map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
  );
  assert.equal(await semaphore.run(async () => 'again'), 'again');
});
