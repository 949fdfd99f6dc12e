import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { conflictReports } from './announcer-link.ts';

test('a conflict about an address is reported once a minute, from however many MACs', () => {
  const clock = manualClock();
  const mayReport = conflictReports(clock);
  const reports = (address: string, claims: number) =>
    Array.from({ length: claims }, () => mayReport(address)).filter(Boolean).length;
  assert.equal(reports('192.0.2.1', 1000), 1);
  assert.equal(reports('192.0.2.2', 1000), 1);
  clock.advance(59_000);
  assert.equal(reports('192.0.2.1', 1000), 0);
  clock.advance(1000);
  assert.equal(reports('192.0.2.1', 1000), 1);
});
