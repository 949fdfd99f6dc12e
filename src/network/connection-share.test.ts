import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { connectionsOf, podsToHold, sampleSize, sharedLevel } from './connection-share.ts';

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

  const levels: [name: string, counts: number[], others: number, isTight: boolean, level: number][] = [
    ['a table with room', [200, 200, 200, 200], 0, false, Number.POSITIVE_INFINITY],
    ['four pods that fill the table together', [250, 250, 250, 250], 0, false, 224],
    ['pods with few connections are not held for those with many', [10, 20, 400, 500], 0, false, 466],
    ['connections from outside leave the pods less', [300, 300], 400, false, 248],
    ['connections from outside alone hold no small pod', [10, 12], 970, false, 16],
    ['a pod that is larger than the least is held for them', [10, 40], 950, false, 16],
    ['pods that are held wait for more room', [210, 210, 210, 210], 0, true, 201],
  ];
  for (const [name, counts, others, isTight, level] of levels)
    test(`in sum: ${name}`, () => {
      const connections = new Map(counts.map((count, i) => [`x/${i}`, count]));
      const total = others + counts.reduce((sum, count) => sum + count, 0);
      const found = sharedLevel(connections, { max: 1024, total }, isTight);
      assert.equal(Math.floor(found), level);
    });
});
