import assert from 'node:assert/strict';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { type ChildDescriptor, pipeFromChild, spawnAsync, spawnLight } from './child-process.ts';

/** Runs a shell script. Returns its output and exit code. */
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
  test('runs a program found in PATH and returns its exit code', async () => {
    assert.deepEqual(await run('echo out; exit 3'), { text: 'out\n', code: 3 });
  });
  test('a program ended by a signal has the exit code 128 plus the signal’s number', async () => {
    assert.equal((await run('kill -9 $$')).code, 137);
  });
  test('has the given environment', async () => {
    assert.equal((await run('echo "$A"', { A: 'b', PATH: process.env['PATH'] ?? '' })).text, 'b\n');
  });
  test('has the default action for signals that Node ignores', async () => {
    const { text } = await run('grep SigIgn /proc/self/status');
    assert.equal(text, 'SigIgn:\t0000000000000000\n');
    assert.doesNotMatch(readFileSync('/proc/self/status', 'utf8'), /SigIgn:\t0000000000000000/);
  });
  test('does not inherit the descriptors of this process', async () => {
    const fd = openSync('/dev/null', 'r');
    const { text } = await run('ls /proc/self/fd');
    closeSync(fd);
    const found = text.trim().split('\n');
    assert.ok(['0', '1', '2'].every((one) => found.includes(one)));
    assert.ok(!found.includes(String(fd)), text);
  });
  test('runs on another thread too', async () => {
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
  test('a missing program is an error with the code of its errno', () => {
    const start = () => spawnLight('no-such-program', [], { descriptors: [] });
    assert.throws(start, { code: 'ENOENT' });
  });
});
