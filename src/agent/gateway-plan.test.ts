import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findRefused } from './gateway-plan.ts';

const ROWS = Array.from({ length: 32 }, (_, i) => `r${i}`);
/** A proxy that refuses some rows, and counts its checks. */
const checker = (refused: readonly string[], always: string | null = null) => {
  let checks = 0;
  return {
    check: async (excluded: ReadonlySet<string>) => {
      checks++;
      return always ?? refused.filter((row) => !excluded.has(row))[0] ?? null;
    },
    count: () => checks,
  };
};

test('the rows that are refused are found', async () => {
  const { check, count } = checker(['r3', 'r17']);
  assert.deepEqual(await findRefused(ROWS, check, 40), [
    { id: 'r3', reason: 'r3' },
    { id: 'r17', reason: 'r17' },
  ]);
  assert.ok(count() <= 24);
});

test('checks are bounded: then all that may be the cause are left out', async () => {
  const { check, count } = checker(ROWS);
  const found = await findRefused(ROWS, check, 8);
  assert.deepEqual(
    found.map(({ id }) => id),
    ROWS,
  );
  assert.ok(count() <= 8 + 1);
});

test('no row is left out for a fault that has another cause', async () => {
  const { check, count } = checker([], 'broken');
  assert.deepEqual(await findRefused(ROWS, check, 40), []);
  assert.equal(count(), 1);
});

const ATTEMPTS = 24;
const rows = Array.from({ length: 400 }, (_, i) => `ingress/team-${i % 20}/a/0/${i}`);
const search = async (isBad: (id: string) => boolean) =>
  (
    await findRefused(
      rows,
      async (excluded) => (rows.some((id) => isBad(id) && !excluded.has(id)) ? 'refused' : null),
      ATTEMPTS,
    )
  ).map(({ id }) => id);

test('one row that the proxy refuses is found', async () => {
  assert.deepEqual(await search((id) => id.endsWith('/123')), ['ingress/team-3/a/0/123']);
  assert.deepEqual(await search(() => false), []);
});

test('many refused rows of one namespace leave out no row of another', async () => {
  const isOfTeam = (id: string) => id.startsWith('ingress/team-7/');
  const found = await search(isOfTeam);
  assert.deepEqual(new Set(found), new Set(rows.filter(isOfTeam)));
});
