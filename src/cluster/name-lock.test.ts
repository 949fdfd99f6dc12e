import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { connectToRole, lockCluster, takeRole } from './name-lock.ts';

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
