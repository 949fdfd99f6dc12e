import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

const MODULE = new URL('./kept-code.ts', import.meta.url).href;
const FLAG = '--enable-experimental-regexp-engine-on-excessive-backtracks';
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-kept-code-'));
  writeFileSync(
    join(folder, 'up.cjs'),
    '(function (exports) { exports.add = (a, b) => ({ wholeSum: a + b }).wholeSum; })',
  );
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const cache = () => join(folder, 'cache');
const files = () => readdirSync(cache()).map((name) => join(cache(), name));

/** Calls a function of the file in a process of its own; returns what it printed. */
function run(then = '', kept = cache()): string {
  const script = `const { runKept } = await import('${MODULE}');
    const { add } = runKept(${JSON.stringify(join(folder, 'up.cjs'))}, ${JSON.stringify(kept)});
    console.log(add(1, 2));${then}`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
  });
  return stdout;
}

const LATE_FLAG = `const { setFlagsFromString } = await import('node:v8'); setFlagsFromString('${FLAG}');`;
for (const [what, then] of [
  ['a run', ''],
  ['a run that sets a flag of V8', LATE_FLAG],
] as const) {
  test(`the bytecode of ${what} is kept, with functions that it called, and used by the next`, () => {
    assert.equal(run(then), '3\n');
    const [file = '', ...others] = files();
    assert.deepEqual(others, []);
    // The names of properties are there only if the function was compiled.
    assert.match(readFileSync(file, 'latin1'), /wholeSum/);
    const { ino } = statSync(file);
    assert.equal(run(then), '3\n');
    assert.deepEqual(files(), [file]);
    assert.equal(statSync(file).ino, ino, 'V8 refused it, and it was written again');
  });
}

test('damaged bytecode is not used, and replaced', () => {
  run();
  const [file = ''] = files();
  const whole = readFileSync(file);
  writeFileSync(file, Buffer.from(whole).fill(0, whole.length / 2));
  assert.equal(run(), '3\n');
  assert.notDeepEqual(readFileSync(file).subarray(whole.length / 2), Buffer.alloc(whole.length / 2));
});

test('a run that failed keeps nothing', () => {
  assert.equal(run('process.exitCode = 1;'), '3\n');
  assert.throws(files, { code: 'ENOENT' });
});

test('a folder that cannot be created is not used', () => {
  assert.equal(run('', join(folder, 'up.cjs', 'cache')), '3\n');
});

test('bytecode of an earlier build is removed', () => {
  run();
  const [earlier = ''] = files();
  writeFileSync(join(folder, 'up.cjs'), '(function (exports) { exports.add = (a, b) => b + a; })');
  assert.equal(run(), '3\n');
  assert.equal(files().length, 1);
  assert.notEqual(files()[0], earlier);
});
