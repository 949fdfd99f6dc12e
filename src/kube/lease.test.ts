import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { createEventRecorder } from './events.ts';
import { holdLease, renewLease } from './lease.ts';
import { miniatureServer } from './testing/miniature-server.ts';
import { RESOURCES } from './types.ts';

const turns = async (count = 20) => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

function electionBench() {
  const server = miniatureServer();
  const clock = manualClock();
  const holders: string[] = [];
  const most = { at: 0 };
  const join = (identity: string) => {
    const ending = new AbortController();
    const done = holdLease({
      client: server.client(identity),
      namespace: 'kube-system',
      name: 'speaker',
      identity,
      durationSeconds: 6,
      clock,
      random: () => 0.5,
      logger: silentLogger,
      signal: ending.signal,
      onHeld(signal) {
        holders.push(identity);
        most.at = Math.max(most.at, holders.length);
        signal.addEventListener('abort', () => holders.splice(holders.indexOf(identity), 1));
      },
    });
    return { leave: () => ending.abort(), done };
  };
  const advance = async (ms: number) => {
    for (let left = ms; left > 0; left -= 100) {
      clock.advance(100);
      await turns(6);
    }
  };
  return { server, holders, most, join, advance };
}

test('one of several candidates acquires a lease, and keeps it', async () => {
  const { holders, most, join, advance } = electionBench();
  const members = ['a', 'b', 'c'].map(join);
  await turns();
  assert.equal(holders.length, 1);
  const [first] = holders;
  await advance(30_000);
  assert.deepEqual(holders, [first]);
  assert.equal(most.at, 1);
  for (const { leave } of members) leave();
  await Promise.all(members.map(({ done }) => done));
});

test('a disconnected holder stops before another starts', async () => {
  const { server, holders, most, join, advance } = electionBench();
  const a = join('a');
  await turns();
  const b = join('b');
  await advance(1000);
  assert.deepEqual(holders, ['a']);
  server.down.add('a');
  await advance(4500);
  assert.deepEqual(holders, [], 'two thirds of the duration without an answer are over');
  await advance(4000);
  assert.deepEqual(holders, ['b']);
  assert.equal(most.at, 1);
  server.down.delete('a');
  await advance(10_000);
  assert.deepEqual(holders, ['b']);
  a.leave();
  b.leave();
  await Promise.all([a.done, b.done]);
});

test('a holder that stops releases the lease immediately', async () => {
  const { holders, join, advance } = electionBench();
  const a = join('a');
  await turns();
  const b = join('b');
  await advance(500);
  a.leave();
  await a.done;
  await advance(1500);
  assert.deepEqual(holders, ['b']);
  b.leave();
  await b.done;
});

test("a node's lease is renewed, also after the server was unreachable", async () => {
  const server = miniatureServer();
  const clock = manualClock(1_000_000);
  const ending = new AbortController();
  const done = renewLease({
    client: server.client('kubelet'),
    namespace: 'kube-node-lease',
    name: 'a',
    identity: 'a',
    durationSeconds: 40,
    clock,
    random: () => 0.5,
    logger: silentLogger,
    signal: ending.signal,
  });
  const lease = () =>
    [...server.objects.values()][0] as unknown as
      | { spec: { renewTime: string; holderIdentity: string } }
      | undefined;
  await turns();
  const first = lease()?.spec.renewTime;
  assert.equal(lease()?.spec.holderIdentity, 'a');
  clock.advance(10_000);
  await turns();
  const second = lease()?.spec.renewTime;
  assert.notEqual(second, first);
  server.down.add('kubelet');
  clock.advance(10_000);
  await turns();
  assert.equal(lease()?.spec.renewTime, second);
  server.down.delete('kubelet');
  clock.advance(1000);
  await turns();
  assert.notEqual(lease()?.spec.renewTime, second);
  ending.abort();
  await done;
});

test('equal events increment a count, and an object with too many events is limited', async () => {
  const server = miniatureServer();
  const clock = manualClock(1_000_000);
  const recorder = createEventRecorder({
    client: server.client('controller'),
    component: 'test-controller',
    host: 'a',
    clock,
    logger: silentLogger,
    signal: new AbortController().signal,
  });
  const object = { metadata: { name: 'web', namespace: 'default', uid: 'u' } };
  for (let i = 0; i < 3; i++) recorder.event(object, 'Normal', 'Scaled', 'up', RESOURCES.deployments);
  await recorder.flush();
  const [event] = [...server.objects.values()] as unknown as Record<string, unknown>[];
  assert.equal(server.objects.size, 1);
  assert.equal(event?.['count'], 3);
  assert.deepEqual(event?.['involvedObject'], {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    name: 'web',
    namespace: 'default',
    uid: 'u',
  });
  assert.deepEqual(event?.['source'], { component: 'test-controller', host: 'a' });
  for (let i = 0; i < 100; i++) recorder.event(object, 'Normal', 'Scaled', `up ${i}`, RESOURCES.deployments);
  await recorder.flush();
  assert.equal(server.objects.size, 23);
});
