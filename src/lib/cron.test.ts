import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isTimeZone, parseCron, zonedTimestamp } from './cron.ts';

const NEXT: readonly [expression: string, after: string, next: string | null, zone?: string][] = [
  ['* * * * *', '2026-01-01T00:00:00Z', '2026-01-01T00:01:00Z'],
  ['* * * * *', '2026-01-01T00:00:30Z', '2026-01-01T00:01:00Z'],
  ['*/15 * * * *', '2026-01-01T00:46:00Z', '2026-01-01T01:00:00Z'],
  ['5/20 * * * *', '2026-01-01T00:26:00Z', '2026-01-01T00:45:00Z'],
  ['0 9-17/4 * * *', '2026-01-01T09:30:00Z', '2026-01-01T13:00:00Z'],
  ['30 4 1,15 * *', '2026-01-02T00:00:00Z', '2026-01-15T04:30:00Z'],
  ['0 0 * * mon-fri', '2026-01-02T12:00:00Z', '2026-01-05T00:00:00Z'],
  ['0 0 13 * 5', '2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'],
  ['0 0 29 2 *', '2026-01-01T00:00:00Z', '2028-02-29T00:00:00Z'],
  ['0 0 30 feb ?', '2026-01-01T00:00:00Z', null],
  ['@hourly', '2026-01-01T00:10:00Z', '2026-01-01T01:00:00Z'],
  ['@weekly', '2026-01-01T00:10:00Z', '2026-01-04T00:00:00Z'],
  ['@every 1h30m', '2026-01-01T00:00:00.5Z', '2026-01-01T01:30:00Z'],
  ['0 9 * * *', '2026-01-01T00:00:00Z', '2026-01-01T14:00:00Z', 'America/New_York'],
  ['0 0 * * *', '2026-01-01T00:00:00Z', '2026-01-01T15:00:00Z', 'Asia/Tokyo'],
  // Clocks in New York skip from 2:00 to 3:00 on 2026-03-08, and show 1:00 to 2:00 twice on 2026-11-01.
  ['30 2 * * *', '2026-03-08T00:00:00Z', '2026-03-09T06:30:00Z', 'America/New_York'],
  ['30 1 * * *', '2026-11-01T04:00:00Z', '2026-11-01T05:30:00Z', 'America/New_York'],
  ['30 1 * * *', '2026-11-01T05:30:00Z', '2026-11-01T06:30:00Z', 'America/New_York'],
];
for (const [expression, after, next, zone] of NEXT) {
  test(`the next time of ${expression} after ${after} ${zone ?? ''}`, () => {
    const found = parseCron(expression, zone).next(Date.parse(after));
    assert.equal(found === null ? null : new Date(found).toISOString().replace('.000', ''), next);
  });
}

for (const wrong of [
  '',
  '* * * *',
  '60 * * * *',
  '* * 0 * *',
  '5-1 * * * *',
  '*/0 * * * *',
  'a * * * *',
  '@x',
]) {
  test(`the schedule ${JSON.stringify(wrong)} is refused`, () => {
    assert.throws(() => parseCron(wrong));
  });
}

test('time zones are known by their names, and timestamps show their offsets', () => {
  assert.deepEqual(['Europe/Berlin', 'Nowhere/Town'].map(isTimeZone), [true, false]);
  const time = Date.parse('2026-01-01T12:00:00Z');
  assert.equal(zonedTimestamp(time, 'Asia/Kolkata'), '2026-01-01T17:30:00+05:30');
  assert.equal(zonedTimestamp(time, 'America/New_York'), '2026-01-01T07:00:00-05:00');
  assert.equal(zonedTimestamp(time, 'UTC'), '2026-01-01T12:00:00Z');
});
