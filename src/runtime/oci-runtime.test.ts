import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { runCommand } from './oci-runtime.ts';

const MAX_OUTPUT = 10 * 1024;

interface Row {
  readonly what: string;
  readonly script: string;
  readonly timeoutMs?: number;
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const ROWS: readonly Row[] = [
  {
    what: 'its outputs and exit code',
    script: 'echo a; echo b >&2; exit 3',
    code: 3,
    stdout: 'a\n',
    stderr: 'b\n',
  },
  {
    what: 'the first 10 KiB of a long output',
    script: 'head -c 100000000 /dev/zero | tr "\\0" x; head -c 20000 /dev/zero | tr "\\0" y >&2',
    code: 0,
    stdout: 'x'.repeat(MAX_OUTPUT),
    stderr: 'y'.repeat(MAX_OUTPUT),
  },
  {
    what: 'the first 10 KiB of an output without end, at the timeout',
    script: 'exec yes',
    timeoutMs: 1000,
    code: 124,
    stdout: 'y\n'.repeat(MAX_OUTPUT / 2),
    stderr: 'command timed out',
  },
  {
    what: 'a timeout although another process keeps its output open',
    script: 'echo a; sleep 20 & exit 0',
    timeoutMs: 1000,
    code: 124,
    stdout: 'a\n',
    stderr: 'command timed out',
  },
];

describe('a command in a container returns', () => {
  for (const { what, script, timeoutMs, ...result } of ROWS) {
    test(what, async () => {
      const options = timeoutMs === undefined ? {} : { timeoutMs };
      assert.deepEqual(await runCommand('sh', ['-c', script], options), result);
    });
  }
});
