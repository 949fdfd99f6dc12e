import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { type AliveWatch, watchAlive } from './alive-watch.ts';

const rows: { name: string; happens: (clock: ManualClock, watch: AliveWatch) => void; silent: number }[] = [
  { name: 'a thread that is silent for less is alive', happens: (clock) => clock.advance(14_999), silent: 0 },
  { name: 'a silent thread is noticed once', happens: (clock) => clock.advance(60_000), silent: 1 },
  {
    name: 'a report begins the time again',
    happens(clock, watch) {
      clock.advance(14_000);
      watch.report();
      clock.advance(14_000);
    },
    silent: 0,
  },
  {
    name: 'a thread that is silent again is noticed again',
    happens(clock, watch) {
      clock.advance(20_000);
      watch.report();
      clock.advance(20_000);
    },
    silent: 2,
  },
  {
    name: 'time in which the machine was suspended does not count',
    happens(clock) {
      clock.skip(3_600_000);
      clock.advance(5000);
    },
    silent: 0,
  },
];
for (const { name, happens, silent } of rows) {
  test(name, () => {
    const clock = manualClock();
    let count = 0;
    const watch = watchAlive({
      clock,
      seconds: 15,
      onSilent() {
        count++;
      },
    });
    happens(clock, watch);
    watch.close();
    clock.advance(60_000);
    assert.equal(count, silent);
  });
}
