import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { afterRunning, type Clock, manualClock } from './clock.ts';

/** A clock whose next timer runs late by a time. */
function lateClock(): Clock & { run(lateMs: number): void; readonly pending: number } {
  let now = 0;
  let timer: { at: number; run: () => void } | null = null;
  return {
    now: () => now,
    after(ms, run) {
      timer = { at: now + ms, run };
      return () => {
        timer = null;
      };
    },
    run(lateMs) {
      const due = timer;
      timer = null;
      if (!due) return;
      now = due.at + lateMs;
      due.run();
    },
    get pending() {
      return timer === null ? 0 : 1;
    },
  };
}

describe('a timeout of an answer', () => {
  const rows: { name: string; late: number[]; isOver: boolean }[] = [
    { name: 'ends after its four parts', late: [0, 0, 0, 0], isOver: true },
    { name: 'does not end before', late: [0, 0, 0], isOver: false },
    { name: 'ends in time when timers are a little late', late: [20, 20, 20, 20], isOver: true },
    { name: 'does not count a pause of the process', late: [0, 0, 0, 5000], isOver: false },
    { name: 'ends after a pause and the rest of its time', late: [0, 0, 0, 5000, 0], isOver: true },
    { name: 'ends on a machine that is always late', late: Array(12).fill(1000), isOver: true },
  ];
  for (const { name, late, isOver } of rows) {
    test(name, async () => {
      const clock = lateClock();
      let calls = 0;
      afterRunning(clock, 100, () => calls++);
      for (const ms of late) clock.run(ms);
      await setImmediate();
      assert.equal(calls, isOver ? 1 : 0);
      assert.equal(clock.pending, isOver ? 0 : 1);
    });
  }

  test('lets events that were waiting be handled first, and can still be cancelled by them', async () => {
    const clock = manualClock();
    let calls = 0;
    const cancel = afterRunning(clock, 100, () => calls++);
    clock.advance(100);
    assert.equal(calls, 0);
    cancel();
    await setImmediate();
    assert.equal(calls, 0);
  });
});
