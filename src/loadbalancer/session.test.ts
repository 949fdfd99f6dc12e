import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { ANNOUNCEMENT_NAMESPACE, leaseDurationMs } from '../kube/load-balancer.ts';
import { type MiniatureServer, miniatureServer } from '../kube/testing/miniature-server.ts';
import type { Lease } from '../kube/types.ts';
import { type ManualClock, manualClock, pause } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { type Session, startSession } from './session.ts';

const OWNER_MS = 750;
/** The node stops acting two thirds of the duration after a renewal. */
const FENCE_MS = 500;

let clock: ManualClock;
let server: MiniatureServer;
let session: Session;
let ending: AbortController;
/** Whether the session lasted at each moment of `pass`. */
let gaps: number;

const turns = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};
/** Lets time pass for a process that runs. */
const pass = async (ms: number) => {
  for (const end = clock.now() + ms; clock.now() < end; ) {
    clock.advance(Math.min(10, end - clock.now()));
    await turns();
    if (!session.mayAct()) gaps++;
  }
};
/** Lets time pass for a process that does not run. Returns whether it may act before it has renewed. */
const stall = async (ms: number) => {
  clock.skip(ms);
  const may = session.mayAct();
  await turns();
  return may;
};
const durationInLease = () => {
  const [lease] = server.objects.values();
  assert.ok(lease);
  return leaseDurationMs(lease as unknown as Lease);
};

beforeEach(async () => {
  clock = manualClock(1_000_000);
  server = miniatureServer();
  ending = new AbortController();
  gaps = 0;
  session = startSession({
    client: server.client('n1'),
    node: 'n1',
    namespace: ANNOUNCEMENT_NAMESPACE,
    ownerMs: OWNER_MS,
    idleMs: 9000,
    clock,
    steady: clock.now,
    random: () => 0.5,
    logger: silentLogger,
    signal: ending.signal,
    onChange: () => {},
  });
  session.setBusy(true);
  await turns();
  await pass(200);
  gaps = 0;
});
afterEach(() => ending.abort());

test('a node with addresses renews in time for the usual duration', async () => {
  await pass(5000);
  assert.deepEqual([gaps, durationInLease()], [0, OWNER_MS]);
});

test('a node that was late asks for more time, and acts through the next pauses of that length', async () => {
  assert.equal(await stall(FENCE_MS + 100), false);
  await pass(100);
  assert.ok(durationInLease() > OWNER_MS);
  for (let i = 0; i < 5; i++) {
    assert.equal(await stall(FENCE_MS + 100), true, `pause ${i}`);
    await pass(400);
  }
  assert.equal(gaps, 0);
});

test('a slow API server counts as well', async () => {
  server.delay = () => pause(clock, 300);
  await pass(5000);
  gaps = 0;
  server.delay = () => pause(clock, 450);
  await pass(5000);
  assert.equal(gaps, 0);
});

test('after a pause, the node counts again since when it may act', async () => {
  await pass(1000);
  assert.ok(session.actingMs() >= 1000);
  await stall(5000);
  assert.equal(session.actingMs(), 0);
  await pass(300);
  assert.equal(session.actingMs(), 300);
});

test('the usual duration returns after renewals in time', async () => {
  await stall(2000);
  await pass(100);
  assert.ok(durationInLease() > OWNER_MS);
  await pass(60_000);
  assert.equal(durationInLease(), OWNER_MS);
});

test('a shorter duration holds from when it was sent, even if its answer is lost', async () => {
  await stall(2000);
  await pass(100);
  assert.equal(durationInLease(), 4 * OWNER_MS);
  let sentAt = 0;
  server.delay = async () => {
    if (durationInLease() === 4 * OWNER_MS) return;
    sentAt ||= clock.now();
    await pause(clock, 60_000);
  };
  for (let i = 0; sentAt === 0 && i < 100; i++) await pass(500);
  const duration = durationInLease();
  assert.ok(sentAt > 0 && duration < 4 * OWNER_MS);
  // The others count the whole duration, from later.
  while (session.mayAct() && clock.now() < sentAt + 60_000) await pass(10);
  assert.ok(clock.now() - sentAt <= (duration * 2) / 3 + 10, `acted for ${clock.now() - sentAt} ms`);
});

test('a node that holds no addresses is not asked to renew often', async () => {
  session.setBusy(false);
  await stall(1000);
  await pass(2000);
  assert.equal(durationInLease(), 9000);
  assert.equal(session.isBusy, false);
});
