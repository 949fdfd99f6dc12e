import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPacedStream } from './paced-stream.ts';
import { createUnreadBudget } from './unread-budget.ts';

const MAX = 1000;

/** Watches by name with their group and unread bytes; returns the names of those that are disconnected. */
function disconnected(rows: readonly [name: string, group: string, unread: number][]): string[] {
  const budget = createUnreadBudget(MAX);
  const gone: string[] = [];
  for (const [name, group, unread] of rows)
    budget.join({ unread: () => unread, group: () => group, disconnect: () => gone.push(name) });
  budget.received(MAX);
  return gone;
}

const rows: [what: string, watches: [string, string, number][], gone: string[]][] = [
  [
    'watches that lag by less than the limit stay',
    [
      ['a', '1', 600],
      ['b', '2', 400],
    ],
    [],
  ],
  [
    'the one that lags the most is disconnected',
    [
      ['a', '1', 400],
      ['b', '2', 700],
      ['c', '3', 300],
    ],
    ['b'],
  ],
  [
    'as many as needed',
    [
      ['a', '1', 900],
      ['b', '2', 800],
      ['c', '3', 700],
    ],
    ['a', 'b'],
  ],
  [
    'watches of one group count once',
    [
      ['a', '1', 600],
      ['b', '1', 600],
      ['c', '1', 600],
    ],
    [],
  ],
  [
    'of a group, all that lag by so much',
    [
      ['a', '1', 900],
      ['b', '1', 900],
      ['c', '1', 100],
      ['d', '2', 800],
    ],
    ['a', 'b'],
  ],
];
for (const [what, watches, gone] of rows) test(what, () => assert.deepEqual(disconnected(watches), gone));

test('a watch that has ended is not counted', () => {
  const budget = createUnreadBudget(MAX);
  const leave = budget.join({ unread: () => 2 * MAX, group: () => 1, disconnect: () => assert.fail() });
  leave();
  budget.received(MAX);
});

test('the sum is taken once for many events', () => {
  const budget = createUnreadBudget(MAX);
  let looks = 0;
  const unread = () => ++looks;
  budget.join({ unread, group: () => 1, disconnect: () => assert.fail() });
  for (let i = 0; i < 500; i++) budget.received(1);
  assert.equal(looks, 4);
});

test('of 50 watches that are not read, no more than the limit and an eighth waits; one that is read gets all', () => {
  const budget = createUnreadBudget(MAX);
  const open = () => {
    const paced = createPacedStream(10 * MAX);
    budget.join({ unread: paced.unread, group: () => paced, disconnect: () => paced.stream.destroy() });
    return paced;
  };
  const stalled = Array.from({ length: 50 }, open);
  const read = open();
  let received = 0;
  read.stream.on('data', (bytes: Buffer) => {
    received += bytes.length;
  });
  for (let event = 0; event < 20; event++)
    for (const paced of [...stalled, read]) {
      paced.push(Buffer.alloc(10));
      budget.received(10);
      read.stream.read();
      const waiting = stalled.reduce((sum, one) => sum + one.unread(), 0);
      assert.ok(waiting <= (MAX * 9) / 8, `${waiting} bytes wait`);
    }
  assert.equal(received, 200);
});
