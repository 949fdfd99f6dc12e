import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from './clock.ts';
import { createWorkQueue, type WorkQueueOptions } from './work-queue.ts';

function setUp(process: WorkQueueOptions['process'], more: Partial<WorkQueueOptions> = {}) {
  const ending = new AbortController();
  const clock = manualClock();
  const queue = createWorkQueue({ process, clock, random: () => 1, signal: ending.signal, ...more });
  return { queue, clock, ending };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a burst of additions is processed once', async () => {
  const seen: string[] = [];
  const { queue } = setUp(async (key) => void seen.push(key));
  for (const key of ['a', 'b', 'a', 'a']) queue.add(key);
  await queue.idle();
  assert.deepEqual(seen, ['a', 'b']);
});

test('a key added while it is processed is processed once more, never concurrently', async () => {
  let active = 0;
  let most = 0;
  let runs = 0;
  const { queue } = setUp(async (key) => {
    most = Math.max(most, ++active);
    if (runs++ === 0) {
      queue.add(key);
      queue.add(key);
    }
    await turn();
    active--;
  });
  queue.add('a');
  await queue.idle();
  assert.deepEqual({ most, runs }, { most: 1, runs: 2 });
});

test('no more keys than allowed are processed concurrently', async () => {
  let active = 0;
  let most = 0;
  const { queue } = setUp(
    async () => {
      most = Math.max(most, ++active);
      await turn();
      active--;
    },
    { concurrency: 3 },
  );
  for (let i = 0; i < 20; i++) queue.add(String(i));
  await queue.idle();
  assert.equal(most, 3);
});

test('a failure is retried after a delay that doubles, and success resets it', async () => {
  const at: number[] = [];
  const attempts: number[] = [];
  const { queue, clock } = setUp(
    async () => {
      at.push(clock.now());
      if (at.length <= 3 || at.length === 5) throw new Error('no');
    },
    { firstBackoffMs: 10, onError: (_key, _error, attempt) => attempts.push(attempt) },
  );
  queue.add('a');
  await queue.idle();
  for (const ms of [10, 20, 40]) {
    clock.advance(ms);
    await queue.idle();
  }
  assert.deepEqual(at, [0, 10, 30, 70]);
  queue.add('a');
  await queue.idle();
  clock.advance(10);
  await queue.idle();
  assert.deepEqual(at, [0, 10, 30, 70, 70, 80]);
  assert.deepEqual(attempts, [1, 2, 3, 1]);
});

test('of several delays for a key the shortest applies', async () => {
  let runs = 0;
  const { queue, clock } = setUp(async () => void runs++);
  queue.addAfter('a', 100);
  queue.addAfter('a', 10);
  queue.addAfter('a', 50);
  clock.advance(10);
  await queue.idle();
  assert.equal(runs, 1);
  clock.advance(1000);
  await queue.idle();
  assert.equal(runs, 1);
});

test('after an abort no key is started, and idle waits for the running ones', async () => {
  const gate = Promise.withResolvers<void>();
  const seen: string[] = [];
  const { queue, ending } = setUp(
    async (key) => {
      seen.push(`${key} begins`);
      await gate.promise;
      seen.push(`${key} ends`);
    },
    { concurrency: 1 },
  );
  queue.add('a');
  queue.add('b');
  await turn();
  ending.abort();
  queue.add('c');
  const idle = queue.idle().then(() => seen.push('idle'));
  gate.resolve();
  await idle;
  assert.deepEqual(seen, ['a begins', 'a ends', 'idle']);
});
