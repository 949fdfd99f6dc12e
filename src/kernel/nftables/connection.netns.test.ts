import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createNetns, removeNetns } from '../netns.ts';
import { NftConnection } from './connection.ts';
import { DATA_TYPE, NFPROTO } from './constants.ts';

/** The kernel compares the name of each set with those of all before: some hundred milliseconds. */
const SETS = 8000;
const TABLE = 'large';

test('a large transaction of one connection does not block the thread that closes others and commits', async () => {
  const netns = `flt-${randomBytes(3).toString('hex')}`;
  createNetns(netns);
  const [large, small, observer] = [1, 2, 3].map(() => new NftConnection(netns)) as [
    NftConnection,
    NftConnection,
    NftConnection,
  ];
  try {
    const batch = large.batch(NFPROTO.ipv4);
    batch.addTable(TABLE);
    for (let i = 0; i < SETS; i++) batch.addSet(TABLE, { name: `set-${i}`, key: [DATA_TYPE.ipv4Address] });
    const one = small.batch(NFPROTO.ipv4);
    one.addTable('small');
    const before = observer.generation();
    const isLate = large.commit(batch);
    // The thread begins.
    await sleep(20);
    new NftConnection(netns).close();
    const isSmallLate = small.commit(one);
    assert.equal(observer.generation(), before, 'the large transaction has ended meanwhile');
    await Promise.all([isLate, isSmallLate]);
    assert.deepEqual(
      observer
        .tables(NFPROTO.ipv4)
        .map(({ name }) => name)
        .sort(),
      [TABLE, 'small'],
    );
  } finally {
    for (const connection of [large, small, observer]) connection.close();
    removeNetns(netns);
  }
});
