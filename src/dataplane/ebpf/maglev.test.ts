import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Endpoint } from '../../service/model.ts';
import { maglevTable } from './maglev.ts';

const endpoints = (count: number): Endpoint[] =>
  Array.from({ length: count }, (_, i) => ({
    ip: `10.244.${i >> 8}.${i & 255}`,
    port: 8080,
    local: true,
    terminating: false,
    nodeName: null,
    target: null,
  }));

function shares(table: readonly Endpoint[]): number[] {
  const counts = new Map<string, number>();
  for (const { ip } of table) counts.set(ip, (counts.get(ip) ?? 0) + 1);
  return [...counts.values()];
}

for (const count of [1, 2, 3, 10, 100]) {
  test(`${count} endpoints have nearly equal shares of a Maglev table`, () => {
    const table = maglevTable(endpoints(count));
    const counts = shares(table);
    assert.equal(counts.length, count);
    assert.ok(Math.max(...counts) - Math.min(...counts) <= Math.max(1, table.length / count / 10));
  });
}

test('when one of ten endpoints is removed, few entries of the others change', () => {
  const before = maglevTable(endpoints(10));
  const gone = before[0];
  const after = maglevTable(endpoints(10).filter(({ ip }) => ip !== gone?.ip));
  const moved = before.filter((endpoint, i) => endpoint.ip !== gone?.ip && endpoint.ip !== after[i]?.ip);
  assert.ok(moved.length < before.length * 0.15, `${moved.length} of ${before.length} moved`);
});

test('the table without endpoints is empty', () => assert.deepEqual(maglevTable([]), []));
