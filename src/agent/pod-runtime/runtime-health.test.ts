import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { NEW_RECORD, type ProcessRecord } from '../../kernel/process-record.ts';
import { type RuntimeState, runtimeProblems } from './runtime-health.ts';

const NOW = 1_000_000;
const running: ProcessRecord = {
  ...NEW_RECORD,
  identity: { pid: 7, startTime: '1' },
  startedAt: NOW - 120_000,
  startAt: null,
};
const lastExit = { at: NOW, reason: 'killed by SIGKILL' };
const ended: ProcessRecord = { ...running, identity: null, failures: 1, lastExit, startAt: NOW + 200 };

describe('the problem of a node whose pod runtime', () => {
  const rows: [string, Partial<RuntimeState>, string | null, string | null][] = [
    ['works', {}, null, null],
    [
      'is restarted',
      { record: ended, silentMs: 1000 },
      'the pod runtime is not running: killed by SIGKILL',
      null,
    ],
    ['does not answer, and will be killed', { silentMs: 29_000 }, null, null],
    [
      'has not run for long',
      { record: ended, silentMs: 60_000 },
      ...twice('the pod runtime is not running: killed by SIGKILL'),
    ],
    [
      'has not answered for long, although it was started again',
      { record: { ...running, lastExit }, silentMs: 60_000 },
      ...twice('the pod runtime does not answer: killed by SIGKILL'),
    ],
    [
      'ends again and again, each time after it has answered',
      { record: { ...running, failures: 8, lastExit, startedAt: NOW - 2000 }, isReady: true },
      ...twice('the pod runtime has ended 8 times in a row: killed by SIGKILL'),
    ],
    [
      'has ended again and again, and runs for a minute now',
      { record: { ...running, failures: 8, lastExit, startedAt: NOW - 60_000 }, isReady: true },
      null,
      null,
    ],
    [
      'has ended again and again, and runs for a minute now without being ready',
      { record: { ...running, failures: 8, lastExit, startedAt: NOW - 60_000 }, isReady: false },
      ...twice('the pod runtime has ended 8 times in a row: killed by SIGKILL'),
    ],
    [
      'was silent for long, and is ready again',
      { record: { ...running, failures: 1, lastExit, startedAt: NOW }, wasLasting: true },
      null,
      null,
    ],
    [
      'was silent for long, and answers without being ready',
      { record: { ...running, failures: 1, lastExit, startedAt: NOW }, isReady: false, wasLasting: true },
      ...twice('the pod runtime does not answer: killed by SIGKILL'),
    ],
    [
      'has ended some times in a row for long, and is ready for a moment',
      { record: { ...running, failures: 6, lastExit, startedAt: NOW - 2000 }, wasLasting: true },
      ...twice('the pod runtime has ended 6 times in a row: killed by SIGKILL'),
    ],
  ];
  for (const [name, change, now, lasting] of rows) {
    test(name, () => {
      const state = {
        record: running,
        isReady: true,
        wasLasting: false,
        silentMs: 0,
        answerMs: 30_000,
        ...change,
      };
      assert.deepEqual(runtimeProblems(state, NOW), { now, lasting });
    });
  }
});

function twice(text: string): [string, string] {
  return [text, text];
}
