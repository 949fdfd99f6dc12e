import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createKeyedSemaphore } from './keyed-semaphore.ts';

test('tasks of one key leave room for others, and wait in order', async () => {
  const semaphore = createKeyedSemaphore({ limit: 3, perKey: 2 });
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (key: string, name: string) =>
    semaphore.run(key, () => {
      started.push(name);
      return new Promise<void>((end) => ends.set(name, end));
    });
  const end = async (name: string) => {
    ends.get(name)?.();
    await new Promise(setImmediate);
  };
  const all = [
    run('a', 'a1'),
    run('a', 'a2'),
    run('a', 'a3'),
    run('b', 'b1'),
    run('b', 'b2'),
    run('a', 'a4'),
  ];
  assert.deepEqual(started, ['a1', 'a2', 'b1']);
  assert.equal(semaphore.isAwaited('a'), true);
  assert.equal(semaphore.isAwaited('b'), false, 'a has its share');
  await end('a1');
  assert.deepEqual(started, ['a1', 'a2', 'b1', 'a3']);
  await end('b1');
  assert.deepEqual(started.at(-1), 'b2');
  for (const name of ['a2', 'a3', 'b2', 'a4']) await end(name);
  await Promise.all(all);
  assert.deepEqual(started, ['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
});

test('a task that fails gives its place back', async () => {
  const semaphore = createKeyedSemaphore({ limit: 1, perKey: 1 });
  await assert.rejects(semaphore.run('a', async () => assert.fail('broken')));
  assert.equal(await semaphore.run('b', async () => 1), 1);
});
