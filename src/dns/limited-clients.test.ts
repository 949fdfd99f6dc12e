import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLimitedClients } from './limited-clients.ts';

test('a client is named for 20 s after its last dropped query', () => {
  let now = 0;
  const clients = createLimitedClients(() => now);
  clients.note('10.244.1.9');
  now = 15_000;
  clients.note('10.244.1.9');
  now = 30_000;
  assert.deepEqual([clients.has('10.244.1.9'), clients.has('10.244.1.8')], [true, false]);
  now = 35_000;
  assert.equal(clients.has('10.244.1.9'), false);
});

test('of more than 4,096 clients, the latest are kept', () => {
  const clients = createLimitedClients(() => 0);
  for (let i = 0; i <= 4096; i++) clients.note(String(i));
  assert.deepEqual([clients.has('0'), clients.has('1'), clients.has('4096')], [false, true, true]);
});
