import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { type RunOptions, runCommand } from './run-command.ts';

const folder = mkdtempSync(join(tmpdir(), 'run-command-'));
after(() => rmSync(folder, { recursive: true }));
const run = (line: string, change: Partial<RunOptions> = {}) =>
  runCommand(line, {
    environment: { PATH: process.env['PATH'], WORD: 'seen' },
    folder,
    maxBytes: 1000,
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    ...change,
  });

const ROWS = [
  { what: 'output and errors, in order', line: 'echo a; echo b >&2; echo c', output: 'a\nb\nc\n', code: 0 },
  { what: 'the code of a failure', line: 'echo no >&2; exit 3', output: 'no\n', code: 3 },
  { what: 'the environment and the folder', line: 'echo $WORD; test -d "$PWD"', output: 'seen\n', code: 0 },
  { what: 'no input', line: 'cat; echo end', output: 'end\n', code: 0 },
  { what: 'no terminal', line: 'test -t 0 || echo none', output: 'none\n', code: 0 },
  { what: 'several lines', line: "cat <<'X'\n$WORD\nX", output: '$WORD\n', code: 0 },
] as const;
for (const { what, line, output, code } of ROWS)
  test(what, async () => assert.deepEqual(await run(line), { output, isCut: false, code }));

test('more output than its bound: the end is kept', async () => {
  const { output, isCut, code } = await run('i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done');
  assert.ok(output.length <= 1000 && output.endsWith('line 19999\n'), output);
  assert.deepEqual([isCut, code], [true, 0]);
});

const isAlive = (pid: number): boolean => {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};
/** Writes the PIDs of two processes, of which one is in the background. */
const LASTING = 'sleep 1000 & echo $! > pids.tmp; echo $$ >> pids.tmp; mv pids.tmp pids;';

for (const [what, line, change] of [
  ['that takes too long', `${LASTING} sleep 1000`, { timeoutMs: 200 }],
  ['that its page no longer waits for', `${LASTING} sleep 1000`, null],
  ['that leaves a process behind', LASTING, {}],
] as const)
  test(`a command ${what} ends with all that it has started`, async () => {
    rmSync(join(folder, 'pids'), { force: true });
    const left = new AbortController();
    const running = run(line, change ?? { signal: left.signal });
    if (change === null) {
      await eventually(() => existsSync(join(folder, 'pids')));
      left.abort();
    }
    const { code } = await running;
    assert.equal(code, line === LASTING ? 0 : null);
    if (!existsSync(join(folder, 'pids'))) return;
    const pids = readFileSync(join(folder, 'pids'), 'utf8').trim().split('\n').map(Number);
    await eventually(() => !pids.some(isAlive));
  });

test('a process in a session of its own that keeps the output is not waited for', async () => {
  const { output, code } = await run('echo begun; setsid sleep 30 & echo $! > daemon; sleep 0.2');
  assert.deepEqual([output, code], ['begun\n', 0]);
  const pid = Number(readFileSync(join(folder, 'daemon'), 'utf8'));
  assert.ok(isAlive(pid), 'it was waited for');
  process.kill(pid);
});
