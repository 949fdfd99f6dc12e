import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

test('the shipped BPF objects match their sources, and equal a rebuild if the compiler is installed', () => {
  const script = join(import.meta.dirname, 'build-bpf.mjs');
  const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});
