import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Factors, pairwise, productOf } from './pairwise.ts';

interface Row {
  readonly origin: string;
  readonly outcome: number;
  readonly protocol: string;
  readonly family: number;
}

const FACTORS: Factors<Row> = {
  origin: ['pod', 'node', 'outside'],
  outcome: [0, 1, 2, 3, 4, 5, 6, 7, 8],
  protocol: ['TCP', 'UDP'],
  family: [4, 6],
};

const pairsOf = (rows: readonly Row[]) =>
  new Set(
    rows.flatMap((row) => {
      const values = Object.entries(row).map(([name, value]) => `${name}=${value}`);
      return values.flatMap((a, i) => values.slice(i + 1).map((b) => `${a} ${b}`));
    }),
  );

for (const rotation of [0, 1, 7, 50, 1000]) {
  test(`each pair of values occurs, rotation ${rotation}`, () => {
    assert.deepEqual(pairsOf(pairwise(FACTORS, rotation)), pairsOf(productOf(FACTORS)));
  });

  test(`the choice is little larger than the product of the two largest factors, rotation ${rotation}`, () => {
    const rows = pairwise(FACTORS, rotation);
    assert.ok(rows.length >= 27 && rows.length <= 32, `${rows.length} rows`);
    assert.equal(new Set(rows.map((row) => JSON.stringify(row))).size, rows.length);
  });
}

test('the same factors give the same choice', () => {
  assert.deepEqual(pairwise(FACTORS, 3), pairwise(FACTORS, 3));
});

test('rotations together cover more of the product than one', () => {
  const rows = [0, 29, 58, 87].flatMap((rotation) => pairwise(FACTORS, rotation));
  const covered = new Set(rows.map((row) => JSON.stringify(row)));
  assert.ok(covered.size >= 60, `${covered.size} of 108`);
});

test('two factors have their product, one factor its values, an empty factor nothing', () => {
  assert.equal(pairwise({ a: [1, 2, 3], b: ['x', 'y'] }).length, 6);
  assert.deepEqual(pairwise({ a: [1, 2, 3] }), [{ a: 1 }, { a: 2 }, { a: 3 }]);
  assert.deepEqual(pairwise({ a: [1, 2], b: [] }), []);
});
