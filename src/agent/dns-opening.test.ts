import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../lib/clock.ts';
import { untilAnswersAreSwift } from './dns-part.ts';

/** Timers fire when they are told to. */
function handClock(): { clock: Clock; fire: () => void; timers: () => number } {
  const due = new Set<() => void>();
  const clock: Clock = {
    now: () => 0,
    after(_ms, work) {
      due.add(work);
      return () => due.delete(work);
    },
  };
  return { clock, fire: () => [...due].map((work) => work()), timers: () => due.size };
}

const later = async () => {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
};

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
    const { clock, fire, timers } = handClock();
    const programmed = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<boolean>();
    if (others === 'failed') answered.reject(new Error('no nft_socket'));
    else if (others !== 'unknown') answered.resolve(others);
    let isOpen = false;
    const opening = untilAnswersAreSwift(
      { others: answered.promise, programmed: programmed.promise },
      clock,
      new AbortController().signal,
    ).then(() => {
      isOpen = true;
    });
    await later();
    assert.equal(isOpen, until === 'at once');
    if (until === 'programmed') programmed.resolve();
    if (until === 'failed') programmed.reject(new Error('EPERM'));
    if (until === 'late') fire();
    await opening;
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
