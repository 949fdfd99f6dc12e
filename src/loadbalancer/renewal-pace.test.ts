import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRenewalPace } from './renewal-pace.ts';

/** Renewals as [milliseconds since the previous one, milliseconds that it took since it was due]. */
const rows: {
  name: string;
  renewals: readonly (readonly [number, number])[];
  pauseMs?: number;
  is: number;
}[] = [
  { name: 'a node without renewals has the usual duration', renewals: [], is: 0 },
  {
    name: 'renewals in time do not extend it',
    renewals: [
      [150, 5],
      [150, 170],
      [150, 12],
    ],
    is: 0,
  },
  {
    name: 'a late renewal doubles it',
    renewals: [
      [150, 5],
      [150, 200],
    ],
    is: 1,
  },
  { name: 'a later one doubles it twice', renewals: [[150, 400]], is: 2 },
  {
    name: 'the latest one remains in force while others are in time',
    renewals: [
      [150, 400],
      [150, 5],
    ],
    is: 2,
  },
  { name: 'the duration is bounded, however late a renewal was', renewals: [[150, 60_000]], is: 2 },
  { name: 'half a minute of timely renewals restores it', renewals: [[150, 60_000]], pauseMs: 30_001, is: 0 },
  { name: 'it is restored step by step', renewals: [[150, 60_000]], pauseMs: 16_000, is: 1 },
];
for (const { name, renewals, pauseMs = 0, is } of rows) {
  test(name, () => {
    let now = 1000;
    const pace = createRenewalPace(750, () => now);
    for (const [since, took] of renewals) {
      now += since;
      pace.record(took);
    }
    now += pauseMs;
    assert.equal(pace.doublings(), is);
  });
}
