import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-compile-cache-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const MODULE = new URL('./compile-cache.ts', import.meta.url).href;
const PROGRAM = new URL('./options.ts', import.meta.url).href;

/** Loads a file of the program in a process of its own, as `fairlead COMMAND` does. */
function run(cache: string, command: string): { status: number | null; accepted: number } {
  const script = `const { keepCompiledCode } = await import('${MODULE}');
    keepCompiledCode(${JSON.stringify(cache)}, '${command}');
    await import('${PROGRAM}');`;
  // Set, it would take precedence.
  const { NODE_COMPILE_CACHE: _, ...env } = process.env;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    env: { ...env, NODE_DEBUG_NATIVE: 'COMPILE_CACHE' },
    encoding: 'utf8',
  });
  return { status, accepted: stderr.split('\n').filter((line) => / was accepted/.test(line)).length };
}

test('a second process of a command loads the code that the first one compiled', () => {
  assert.deepEqual(run(folder, 'up'), { status: 0, accepted: 0 });
  assert.deepEqual(readdirSync(folder), ['up']);
  const { status, accepted } = run(folder, 'up');
  assert.equal(status, 0);
  assert.ok(accepted > 0);
});

test('each command has code of its own', () => {
  run(folder, 'up');
  assert.equal(run(folder, 'agent').accepted, 0);
  assert.deepEqual(readdirSync(folder).sort(), ['agent', 'up']);
});

test('a folder that cannot be created is not used', () => {
  writeFileSync(join(folder, 'file'), '');
  assert.deepEqual(run(join(folder, 'file'), 'up'), { status: 0, accepted: 0 });
});
