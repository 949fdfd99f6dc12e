import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../lib/clock.ts';
import { untilAnswersAreSwift } from './dns-part.ts';

/** A clock that a test advances; `timers` is the number of those that have not fired. */
function handClock(): { clock: Clock; advance: (ms: number) => void; timers: () => number } {
  const waiting = new Map<() => void, number>();
  let now = 0;
  const clock: Clock = {
    now: () => now,
    after(ms, work) {
      waiting.set(work, now + ms);
      return () => waiting.delete(work);
    },
  };
  const advance = (ms: number) => {
    now += ms;
    for (const [work, due] of [...waiting]) {
      if (due > now) continue;
      waiting.delete(work);
      work();
    }
  };
  return { clock, advance, timers: () => waiting.size };
}

const later = async () => {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
};

/** Waits as the agent does; `isOpen`: whether it would have opened the sockets. */
function watchOpening(clock: Clock, others: Promise<boolean>, programmed: Promise<void>) {
  let isOpen = false;
  const { signal } = new AbortController();
  const opening = untilAnswersAreSwift({ others, programmed }, clock, signal).then(() => {
    isOpen = true;
  });
  return { opening, isOpen: () => isOpen };
}

const rows: {
  name: string;
  others: boolean | 'failed' | 'unknown';
  until: 'at once' | 'programmed' | 'failed' | 'late';
}[] = [
  { name: 'others answer: until Services and policies are programmed', others: true, until: 'programmed' },
  { name: 'others answer, and programming fails: then', others: true, until: 'failed' },
  { name: 'others answer, and programming takes long: at the limit', others: true, until: 'late' },
  { name: 'no others answer: queries would be rejected', others: false, until: 'at once' },
  { name: 'the rules of the fallback could not be written', others: 'failed', until: 'at once' },
  { name: 'the nodes are not known: at the limit', others: 'unknown', until: 'late' },
];
for (const { name, others, until } of rows)
  test(`sockets of DNS open late: ${name}`, async () => {
    const { clock, advance, timers } = handClock();
    const programmed = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<boolean>();
    if (others === 'failed') answered.reject(new Error('no nft_socket'));
    else if (others !== 'unknown') answered.resolve(others);
    const { opening, isOpen } = watchOpening(clock, answered.promise, programmed.promise);
    await later();
    assert.equal(isOpen(), until === 'at once');
    if (until === 'programmed') programmed.resolve();
    if (until === 'failed') programmed.reject(new Error('EPERM'));
    if (until === 'late') advance(10_000);
    // Turns of the event loop that come in time.
    for (let turn = 0; turn < 3; turn++) {
      await later();
      advance(5);
    }
    await opening;
    assert.equal(timers(), 0);
  });

test('sockets of DNS open late: what follows programming keeps the event loop busy', async () => {
  const { clock, advance, timers } = handClock();
  const { opening, isOpen } = watchOpening(clock, Promise.resolve(true), Promise.resolve());
  const turns = async (...lengths: readonly number[]) => {
    for (const ms of lengths) {
      await later();
      advance(ms);
    }
    await later();
  };
  // Turns of 5 ms in time, others late by 45 or 60 ms.
  await turns(5, 50, 5, 5, 65, 5, 5);
  assert.equal(isOpen(), false);
  await turns(5);
  assert.equal(isOpen(), true);
  await opening;
  assert.equal(timers(), 0);
});

test('sockets of DNS open late: the event loop is never free', async () => {
  const { clock, advance, timers } = handClock();
  const { opening, isOpen } = watchOpening(clock, Promise.resolve(true), Promise.resolve());
  for (let passed = 0; passed < 10_000; passed += 50) {
    await later();
    assert.equal(isOpen(), false);
    advance(50);
  }
  await opening;
  await later();
  advance(5);
  assert.equal(timers(), 0);
});

test('sockets of DNS open late: the agent ends', async () => {
  const { clock, timers } = handClock();
  const ending = new AbortController();
  const opening = untilAnswersAreSwift(
    { others: Promise.resolve(true), programmed: new Promise(() => {}) },
    clock,
    ending.signal,
  );
  ending.abort();
  await opening;
  assert.equal(timers(), 0);
});
