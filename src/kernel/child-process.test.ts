import assert from 'node:assert/strict';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { type ChildDescriptor, pipeFromChild, spawnAsync, spawnLight } from './child-process.ts';

/** Runs a shell script; its output and exit code. */
async function run(script: string, env?: Record<string, string>) {
  const out = pipeFromChild();
  const descriptors: ChildDescriptor[] = ['ignore', out.descriptor, 'ignore'];
  const child = spawnLight('sh', ['-c', script], { descriptors, ...(env ? { env } : {}) });
  out.close();
  let text = '';
  for await (const chunk of out.stream) text += String(chunk);
  // Nothing else keeps the test running while the child ends.
  const wait = setInterval(() => {}, 1000);
  const code = await child.exited;
  clearInterval(wait);
  return { text, code };
}

describe('a light child process', () => {
  test('runs a program of the PATH, to its exit code', async () => {
    assert.deepEqual(await run('echo out; exit 3'), { text: 'out\n', code: 3 });
  });
  test('ended by a signal: 128 and its number', async () => {
    assert.equal((await run('kill -9 $$')).code, 137);
  });
  test('has the environment that it is given', async () => {
    assert.equal((await run('echo "$A"', { A: 'b', PATH: process.env['PATH'] ?? '' })).text, 'b\n');
  });
  test('ignores no signals, as Node itself does', async () => {
    const { text } = await run('grep SigIgn /proc/self/status');
    assert.equal(text, 'SigIgn:\t0000000000000000\n');
    assert.doesNotMatch(readFileSync('/proc/self/status', 'utf8'), /SigIgn:\t0000000000000000/);
  });
  test('inherits no descriptors that this process has opened', async () => {
    const fd = openSync('/dev/null', 'r');
    const { text } = await run('ls /proc/self/fd');
    closeSync(fd);
    const found = text.trim().split('\n');
    assert.ok(['0', '1', '2'].every((one) => found.includes(one)));
    assert.ok(!found.includes(String(fd)), text);
  });
  test('the same from another thread', async () => {
    const wait = setInterval(() => {}, 1000);
    const child = await spawnAsync('sh', ['-c', 'exit 4'], { descriptors: ['ignore', 'ignore', 'ignore'] });
    assert.equal(await child.exited, 4);
    await assert.rejects(spawnAsync('no-such-program', [], { descriptors: [] }), { code: 'ENOENT' });
    clearInterval(wait);
  });
  test('leaves no zombie', async () => {
    const child = spawnLight('true', [], { descriptors: ['ignore', 'ignore', 'ignore'] });
    const wait = setInterval(() => {}, 1000);
    await child.exited;
    clearInterval(wait);
    assert.throws(() => readFileSync(`/proc/${child.pid}/stat`));
  });
  test('a program that is not there is an error by its code', () => {
    const start = () => spawnLight('no-such-program', [], { descriptors: [] });
    assert.throws(start, { code: 'ENOENT' });
  });
});
