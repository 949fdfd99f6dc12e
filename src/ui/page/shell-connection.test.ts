import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exitStatus } from '../../runtime/streams/exit-status.ts';
import { readEnd, type ShellEnd } from './shell-connection.ts';

const rows: readonly { what: string; text: string; end: ShellEnd }[] = [
  { what: 'success', text: JSON.stringify(exitStatus({ code: 0 })), end: { kind: 'exited', code: 0 } },
  {
    what: 'an exit code',
    text: JSON.stringify(exitStatus({ code: 137 })),
    end: { kind: 'exited', code: 137 },
  },
  {
    what: 'a command that could not be run',
    text: JSON.stringify(exitStatus({ error: 'no such container' })),
    end: { kind: 'failed', message: 'no such container' },
  },
  {
    what: 'a failure without a message',
    text: '{"status":"Failure"}',
    end: { kind: 'failed', message: 'the cluster gives no reason' },
  },
  { what: 'text', text: 'gone', end: { kind: 'failed', message: 'gone' } },
];
for (const { what, text, end } of rows) {
  test(`the end of a shell: ${what}`, () => assert.deepEqual(readEnd(text), end));
}
