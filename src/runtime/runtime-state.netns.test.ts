import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { readControlGroups } from './control-groups.ts';
import { removeRuntimeState } from './runtime-state.ts';

/** What `down` ends: the processes in the control groups of a node. */

const groups = readControlGroups();
const stateDir = mkdtempSync(join(tmpdir(), 'flt-runtime-'));
const parent = `fairlead-${basename(stateDir)}`;
const group = join(groups?.root ?? '', parent, 'node-1', 'pod1');
const sleeper = spawn('sleep', ['600'], { stdio: 'ignore' });
after(() => {
  sleeper.kill('SIGKILL');
  if (groups !== null)
    for (const part of [group, dirname(group), dirname(dirname(group))])
      if (existsSync(part)) rmdirSync(part);
  rmSync(stateDir, { recursive: true, force: true });
});
const skip = groups === null && 'no cgroup v2 hierarchy can be written here';

test('processes of a cluster in another PID namespace, which sees the same hierarchy, go on', {
  skip,
}, async () => {
  mkdirSync(group, { recursive: true });
  writeFileSync(join(group, 'cgroup.procs'), String(sleeper.pid));
  const file = join(import.meta.dirname, 'runtime-state.ts');
  const script = `await (await import(${JSON.stringify(file)})).removeRuntimeState(${JSON.stringify(stateDir)}, '${parent}/node-1')`;
  const words = ['--pid', '--fork', '--mount-proc', '--kill-child', process.execPath];
  await promisify(execFile)('unshare', [...words, '--input-type=module', '-e', script]);
  assert.equal(sleeper.signalCode, null);
  assert.equal(existsSync(group), true);
});

test('the processes of this one end, and the groups are removed', { skip }, async () => {
  assert.equal(sleeper.signalCode, null);
  const ended = once(sleeper, 'exit');
  await removeRuntimeState(stateDir, `${parent}/node-1`);
  assert.deepEqual(await ended, [null, 'SIGKILL']);
  assert.equal(existsSync(dirname(group)), false);
});
