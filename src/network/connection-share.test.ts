import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { connectionsOf, podsToHold, sampleSize } from './connection-share.ts';

const times = (count: number, owner: string | null) => Array.from({ length: count }, () => owner);

describe('the share of tracked connections', () => {
  const samples: { name: string; total: number; owners: (string | null)[]; counts: [string, number][] }[] = [
    { name: 'an empty table', total: 0, owners: [], counts: [] },
    {
      name: 'a whole table is counted',
      total: 5,
      owners: [...times(3, 'x/a'), null, 'x/b'],
      counts: [
        ['x/a', 3],
        ['x/b', 1],
      ],
    },
    {
      name: 'a sample is scaled',
      total: 4000,
      owners: [...times(500, 'x/a'), ...times(500, null)],
      counts: [['x/a', 2000]],
    },
    {
      name: 'connections that ended meanwhile do not reduce the others',
      total: 2,
      owners: times(4, 'x/a'),
      counts: [['x/a', 4]],
    },
  ];
  for (const { name, total, owners, counts } of samples) {
    test(name, () => assert.deepEqual([...connectionsOf({ total, owners })], counts));
  }

  const rows: { name: string; count: number; isHeld: boolean; holds: boolean }[] = [
    { name: 'a pod with its whole share goes on', count: 100, isHeld: false, holds: false },
    { name: 'a pod with more is held', count: 101, isHeld: false, holds: true },
    { name: 'a held pod stays so just below its share', count: 91, isHeld: true, holds: true },
    { name: 'a held pod goes on with less', count: 90, isHeld: true, holds: false },
  ];
  for (const { name, count, isHeld, holds } of rows) {
    test(name, () => {
      const held = podsToHold(new Map([['x/a', count]]), 100, new Set(isHeld ? ['x/a'] : []));
      assert.equal(held.has('x/a'), holds);
    });
  }

  const sizes: [name: string, total: number, share: number, size: number][] = [
    ['a quarter of the table', 262_144, 65_536, 1024],
    ['a hundredth of the table', 100_000, 1000, 16_384],
    ['a tenth of the table', 100_000, 10_000, 2560],
  ];
  for (const [name, total, share, size] of sizes) {
    test(`the sample for ${name}`, () => assert.equal(sampleSize(total, share), size));
  }
});
