import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { manualClock } from '../lib/clock.ts';
import { untilTrafficEnds } from './traffic-end.ts';

const PRE_STOP = { preStop: { sleep: { seconds: 1 } } };
const podOf = (...lifecycles: (object | undefined)[]) =>
  ({ spec: { containers: lifecycles.map((lifecycle) => ({ name: 'c', lifecycle })) } }) as unknown as Pod;

/** Returns for how long the pod's stop is delayed, in milliseconds. */
async function delayOf(options: {
  readonly pod?: Pod;
  readonly graceMs?: number;
  /** When the EndpointSlices no longer list the pod as ready; null: they never list it. */
  readonly leavesAt: number | null;
  readonly urgentAt?: number;
}): Promise<number> {
  const clock = manualClock();
  let isOver = false;
  const waiting = untilTrafficEnds({
    pod: options.pod ?? podOf(undefined),
    graceMs: options.graceMs ?? 30_000,
    clock,
    traffic: () => (options.leavesAt === null ? 'none' : clock.now() < options.leavesAt ? 'new' : 'ending'),
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
  ['not later than after two seconds', { leavesAt: 60_000 }, 2000],
  ['nor later than half of the grace period', { leavesAt: 60_000, graceMs: 1000 }, 500],
  ['without a grace period at once', { leavesAt: 100, graceMs: 0 }, 0],
  ['with a preStop hook at once: the hook waits', { leavesAt: 100, pod: podOf(PRE_STOP) }, 0],
  [
    'a hook of one container does not protect the other',
    { leavesAt: 100, pod: podOf(PRE_STOP, undefined) },
    600,
  ],
  ['a pod that is deleted by force meanwhile', { leavesAt: 60_000, urgentAt: 200 }, 200],
];
for (const [what, options, ms] of ROWS) {
  test(what, async () => {
    const delay = await delayOf(options);
    assert.ok(delay >= ms && delay <= ms + 60, `${delay} ms`);
  });
}
