import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, test } from 'node:test';
import { identify } from '../kernel/process-identity.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { whileSuspended } from './suspension.ts';

let sleeper: ChildProcess;
beforeEach(async () => {
  sleeper = spawn('sleep', ['60']);
  await once(sleeper, 'spawn');
});
afterEach(() => sleeper.kill('SIGKILL'));

/** The state in /proc/PID/stat: "T" is stopped. */
const isStopped = () => /^\d+ \(sleep\) T/.test(readFileSync(`/proc/${sleeper.pid}/stat`, 'latin1'));

function identity() {
  const found = identify(sleeper.pid ?? 0);
  assert.ok(found);
  return found;
}

test('a process is suspended during the work only', async () => {
  let during = false;
  await whileSuspended(identity(), () => {
    during = isStopped();
  });
  assert.deepEqual({ during, after: isStopped() }, { during: true, after: false });
});

test('it goes on when the work fails', async () => {
  const failing = whileSuspended(identity(), () => {
    throw new Error('no space');
  });
  await assert.rejects(failing, /no space/);
  assert.equal(isStopped(), false);
});

test('it goes on when the suspending process is killed', async () => {
  const program = `
    const { whileSuspended } = await import(${JSON.stringify(import.meta.resolve('./suspension.ts'))});
    const forever = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    await whileSuspended(${JSON.stringify(identity())}, forever);`;
  const suspending = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
  try {
    await eventually(isStopped);
  } finally {
    suspending.kill('SIGKILL');
  }
  await eventually(() => !isStopped());
});
