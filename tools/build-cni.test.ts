import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

test('the shipped CNI plugin matches its sources, and equals a rebuild if the compiler is installed', () => {
  const script = join(import.meta.dirname, 'build-cni.mjs');
  const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
