import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ManualClock, manualClock, pause } from '../lib/clock.ts';
import { GracePeriod } from './grace-period.ts';
import { RunExit } from './run-exit.ts';
import { stopRun } from './run-stop.ts';

interface Case {
  /** When the hook is done; absent: there is none. */
  readonly hookMs?: number;
  /** How long the process runs after its termination signal; absent: until it is killed. */
  readonly stopMs?: number;
  readonly deadline?: number;
  readonly graceMs: number;
  /** When Services no longer send the pod new connections; absent: from the beginning. */
  readonly quietAt?: number;
  /** Second deletions: at a time, with a grace period. */
  readonly deletions?: readonly (readonly [at: number, graceMs: number])[];
}

/** Returns what happens to the process: "TERM 500" is a signal at that time. */
async function eventsOf(one: Case): Promise<string[]> {
  const clock = manualClock();
  const grace = new GracePeriod(clock);
  grace.shorten(one.graceMs);
  for (const [at, ms] of one.deletions ?? []) clock.after(at, () => grace.shorten(ms));
  const events: string[] = [];
  let endsAt = Number.POSITIVE_INFINITY;
  const isRunning = () => clock.now() < endsAt;
  const { hookMs } = one;
  let isOver = false;
  const stopped = stopRun({
    clock,
    deadline: one.deadline ?? Number.POSITIVE_INFINITY,
    grace,
    exit: new RunExit(clock, isRunning),
    hook:
      hookMs === undefined
        ? null
        : async (_ms, signal) => {
            await pause(clock, hookMs, signal);
            events.push(`hook ${signal.aborted ? 'aborted' : 'done'} ${clock.now()}`);
            return { ok: true, message: '' };
          },
    quiet: one.quietAt === undefined ? Promise.resolve() : pause(clock, one.quietAt),
    hookFailed: () => events.push('hook failed'),
    isRunning,
    terminate: () => {
      events.push(`TERM ${clock.now()}`);
      if (one.stopMs !== undefined) endsAt = clock.now() + one.stopMs;
    },
    kill: () => {
      events.push(`KILL ${clock.now()}`);
      endsAt = clock.now();
    },
  }).then(() => {
    isOver = true;
  });
  await until(clock, () => isOver);
  await stopped;
  return events;
}

async function until(clock: ManualClock, isOver: () => boolean): Promise<void> {
  for (;;) {
    await new Promise((resolve) => setImmediate(resolve));
    if (isOver()) return;
    clock.advance(50);
  }
}

const ROWS: readonly [what: string, one: Case, events: readonly string[]][] = [
  ['a process that ends in time is not killed', { graceMs: 1000, stopMs: 300 }, ['TERM 0']],
  ['one that does not is killed at the end of the grace period', { graceMs: 1000 }, ['TERM 0', 'KILL 1000']],
  ['or at its own deadline', { graceMs: 9000, deadline: 1000 }, ['TERM 0', 'KILL 1000']],
  ['or at once, if that has passed', { graceMs: 9000, deadline: 0 }, ['KILL 0']],
  [
    'a shorter grace period counts from its deletion',
    { graceMs: 600_000, deletions: [[5000, 1000]] },
    ['TERM 0', 'KILL 6000'],
  ],
  ['a longer one has no effect', { graceMs: 2000, deletions: [[500, 60_000]] }, ['TERM 0', 'KILL 2000']],
  [
    'each deletion may shorten it',
    {
      graceMs: 600_000,
      deletions: [
        [1000, 60_000],
        [2000, 3000],
      ],
    },
    ['TERM 0', 'KILL 5000'],
  ],
  ['the hook runs before TERM', { graceMs: 9000, hookMs: 500, stopMs: 100 }, ['hook done 500', 'TERM 500']],
  ['TERM waits for the end of traffic', { graceMs: 9000, quietAt: 700, stopMs: 100 }, ['TERM 700']],
  [
    'which the hook does not wait for',
    { graceMs: 9000, hookMs: 500, quietAt: 700, stopMs: 100 },
    ['hook done 500', 'TERM 700'],
  ],
  [
    'traffic that does not end before the deadline',
    { graceMs: 9000, deadline: 1000, quietAt: 60_000 },
    ['KILL 1000'],
  ],
  [
    'the time of the hook counts',
    { graceMs: 9000, hookMs: 5000 },
    ['hook done 5000', 'TERM 5000', 'KILL 9000'],
  ],
  [
    'after a hook that used up the grace period, the process has two seconds',
    { graceMs: 1000, hookMs: 60_000 },
    ['TERM 1000', 'hook aborted 1000', 'KILL 3000'],
  ],
  [
    'a shorter grace period ends the hook, too',
    { graceMs: 600_000, hookMs: 60_000, deletions: [[5000, 1000]] },
    ['TERM 6000', 'hook aborted 6000', 'KILL 8000'],
  ],
];

describe('the stop of a run', () => {
  for (const [what, one, events] of ROWS) {
    test(what, async () => {
      assert.deepEqual((await eventsOf(one)).sort(), [...events].sort());
    });
  }
  test('a grace period that is longer than the longest timer is kept', () => {
    const clock = manualClock();
    const grace = new GracePeriod(clock);
    const ms = 60 * 86_400_000;
    grace.shorten(ms);
    let endedAt = 0;
    grace.after(Number.POSITIVE_INFINITY, () => {
      endedAt = clock.now();
    });
    clock.advance(2 * ms);
    assert.equal(endedAt, ms);
  });
});
