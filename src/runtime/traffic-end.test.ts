import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { type Traffic, untilTrafficEnds } from './traffic-end.ts';

/** Returns for how long the pod's stop is delayed, in milliseconds. */
async function delayOf(options: {
  readonly graceMs?: number;
  /** When the EndpointSlices no longer list the pod as ready; null: they never list it. */
  readonly leavesAt: number | null;
  /** The traffic until then; default: `new`. */
  readonly before?: Traffic;
  /** When all nodes have programmed that; default: at once. */
  readonly programmedAt?: number;
  readonly urgentAt?: number;
}): Promise<number> {
  const clock = manualClock();
  let isOver = false;
  const waiting = untilTrafficEnds({
    graceMs: options.graceMs ?? 30_000,
    clock,
    traffic() {
      if (options.leavesAt === null) return 'none';
      if (clock.now() < options.leavesAt) return options.before ?? 'new';
      return clock.now() < (options.programmedAt ?? 0) ? 'programming' : 'ending';
    },
    isUrgent: () => clock.now() >= (options.urgentAt ?? Number.POSITIVE_INFINITY),
  }).then(() => {
    isOver = true;
  });
  while (!isOver) {
    await new Promise((resolve) => setImmediate(resolve));
    if (!isOver) clock.advance(10);
  }
  await waiting;
  return clock.now();
}

const ROWS: readonly [what: string, options: Parameters<typeof delayOf>[0], ms: number][] = [
  ['a pod of no Service is stopped at once', { leavesAt: null }, 0],
  ['a pod that the Services have just left waits for the other nodes', { leavesAt: 0 }, 500],
  ['a server is stopped when the Services have left it', { leavesAt: 100 }, 600],
  ['and all nodes have programmed that', { leavesAt: 100, programmedAt: 3000 }, 3500],
  ['not later than after ten seconds', { leavesAt: 60_000 }, 10_000],
  ['nor if a node never programs it', { leavesAt: 100, programmedAt: 60_000 }, 10_000],
  ['after two, if a slice keeps it that no controller changes', { leavesAt: 60_000, before: 'kept' }, 2000],
  ['nor later than half of the grace period', { leavesAt: 60_000, graceMs: 1000 }, 500],
  ['without a grace period at once', { leavesAt: 100, graceMs: 0 }, 0],
  ['a pod that is deleted by force meanwhile', { leavesAt: 60_000, urgentAt: 200 }, 200],
];
for (const [what, options, ms] of ROWS) {
  test(what, async () => {
    const delay = await delayOf(options);
    assert.ok(delay >= ms && delay <= ms + 60, `${delay} ms`);
  });
}
