import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { connectToRole, lockCluster, planAlone, takeRole } from './name-lock.ts';

const unique = () => `t${randomBytes(4).toString('hex')}`;

test('a locked cluster names the process that holds the lock, and is free after the release', async () => {
  const name = unique();
  const lock = await lockCluster(name, 'fairlead up');
  await assert.rejects(lockCluster(name, 'fairlead up'), {
    code: 'locked',
    message: new RegExp(`^cluster ${name} is locked by "fairlead up" \\(process ${process.pid}, since `),
    hint: `wait until it is ready, or stop it: kill ${process.pid}`,
  });
  const other = await lockCluster(unique(), 'fairlead up');
  other.release();
  lock.release();
  (await lockCluster(name, 'fairlead up')).release();
});

test('kill -9 of the holder frees the role', async () => {
  const name = unique();
  const program = `
    const { takeRole } = await import(${JSON.stringify(join(import.meta.dirname, 'name-lock.ts'))});
    await takeRole('up', ${JSON.stringify(name)}, 'test');
    console.log('has it');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  assert.equal(await takeRole('up', name, 'test'), null);
  const connection = await connectToRole('up', name);
  assert.equal(connection?.holder.pid, child.pid);
  const closed = once(connection?.socket ?? child, 'close');
  child.kill('SIGKILL');
  await closed;
  const role = await eventually(() => takeRole('up', name, 'test'));
  role.release();
});

test('messages reach the holder; lines that are too long or not JSON do not', async () => {
  const name = unique();
  const messages: unknown[] = [];
  const role = await takeRole('supervisor', name, 'test', (message) => messages.push(message));
  for (const line of ['{"hurry":true}\n', 'nonsense\n', `"${'x'.repeat(10_000)}"\n`]) {
    const connection = await connectToRole('supervisor', name);
    await new Promise((resolve) => connection?.socket.end(line, () => resolve(null)));
  }
  await eventually(() => messages.length > 0);
  assert.deepEqual(messages, [{ hurry: true }]);
  role?.release();
});

test('a role that was never taken has no holder', async () => {
  assert.equal(await connectToRole('up', unique()), null);
});

test('plans of several processes are made one after the other', async () => {
  const program = `
    const { planAlone } = await import(${JSON.stringify(join(import.meta.dirname, 'name-lock.ts'))});
    await planAlone('test', () => {
      const begun = process.hrtime.bigint();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 30);
      console.log(JSON.stringify([String(begun), String(process.hrtime.bigint())]));
    });`;
  const spans = await Promise.all(
    [1, 2, 3].map(async () => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [text] = (await once(child.stdout, 'data')) as [Buffer];
      return (JSON.parse(String(text)) as string[]).map(BigInt);
    }),
  );
  const sorted = spans.sort(([a = 0n], [b = 0n]) => (a < b ? -1 : 1)).flat();
  assert.deepEqual(
    sorted,
    [...sorted].sort((a, b) => (a < b ? -1 : 1)),
  );
});

test('a plan that fails does not hold up the next one', async () => {
  await assert.rejects(
    planAlone('test', () => {
      throw new Error('no network is free');
    }),
    /no network is free/,
  );
  assert.equal(await planAlone('test', () => 7), 7);
});

test('a process that waits for another one to plan can be interrupted, and plans nothing', async () => {
  const held = await takeRole('planner', '', 'test');
  assert.ok(held);
  const stop = new AbortController();
  let isPlanned = false;
  const plan = () => {
    isPlanned = true;
  };
  const waiting = planAlone('test', plan, stop.signal);
  stop.abort(new Error('interrupted'));
  await assert.rejects(waiting, /interrupted/);
  held.release();
  assert.equal(isPlanned, false);
});
