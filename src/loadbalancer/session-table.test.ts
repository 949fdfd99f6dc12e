import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { sessionLeaseMetadata } from '../kube/load-balancer.ts';
import type { Lease } from '../kube/types.ts';
import { createSessionTable, type SessionTable } from './session-table.ts';

let now = 0;
let table: SessionTable;
beforeEach(() => {
  now = 1000;
  table = createSessionTable(() => now, 9000);
});

const lease = (node: string, session: string, durationMs = 750): Lease => ({
  metadata: sessionLeaseMetadata(node, durationMs),
  spec: { holderIdentity: session, leaseDurationSeconds: 1 },
});

test('a session lasts for its duration after each renewal, to the millisecond', () => {
  table.see(lease('n1', 'n1/a'));
  now += 749;
  assert.deepEqual([...table.lasting()], [['n1', 'n1/a']]);
  table.see(lease('n1', 'n1/a'));
  now += 749;
  assert.deepEqual([...table.lasting()], [['n1', 'n1/a']]);
  assert.deepEqual(table.ages(), [{ node: 'n1', ageMs: 749, durationMs: 750 }]);
  now += 1;
  assert.deepEqual([...table.lasting()], []);
});

test('a session that was not renewed has to be ended before it is over', () => {
  table.see(lease('n1', 'n1/a'));
  now += 780;
  assert.deepEqual(
    table.expired(() => 31),
    [],
  );
  assert.equal(table.expired(() => 30).length, 1);
  assert.equal(table.isOver('n1/a'), false);
  table.see(lease('n1', ''));
  assert.equal(table.isOver('n1/a'), true);
  assert.deepEqual(
    table.expired(() => 0),
    [],
  );
});

test('a new session of a node ends the previous one', () => {
  table.see(lease('n1', 'n1/a'));
  table.see(lease('n1', 'n1/b'));
  assert.deepEqual([table.isOver('n1/a'), table.isOver('n1/b')], [true, false]);
});

test('a Lease that was deleted stays valid for its duration: its node may not have noticed', () => {
  table.see(lease('n1', 'n1/a'));
  now += 500;
  table.forget(lease('n1', 'n1/a'));
  assert.deepEqual([...table.lasting()], []);
  now += 749;
  assert.equal(table.isOver('n1/a'), false);
  now += 1;
  assert.equal(table.isOver('n1/a'), true);
});

test('a session without a Lease is over after the longest duration of sessions', () => {
  assert.equal(table.isOver('n9/z'), false);
  now += 8999;
  assert.equal(table.isOver('n9/z'), false);
  now += 1;
  assert.equal(table.isOver('n9/z'), true);
});

test('other Leases are ignored', () => {
  table.see({ metadata: { name: 'n1', namespace: 'kube-node-lease' }, spec: { holderIdentity: 'n1' } });
  assert.deepEqual([...table.lasting()], []);
  assert.deepEqual(table.ages(), []);
});
