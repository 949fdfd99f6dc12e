import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { createClient } from './client.ts';
import { createEventRecorder } from './events.ts';
import { jsonAnswer } from './testing/json-answer.ts';
import type { Transport } from './transport.ts';
import { type Event, RESOURCES } from './types.ts';

const SERVICE = { metadata: { name: 'a', namespace: 'default', uid: 'u' } };

/** An API server with Events only; `taken` counts the refused names. */
function eventServer(refuses: (name: string) => boolean = () => false) {
  const stored = new Map<string, Event>();
  let taken = 0;
  const transport: Transport = async ({ method, path, body }) => {
    const sent = JSON.parse(String(body)) as Event;
    const name =
      method === 'POST' ? (sent.metadata?.name ?? '') : (path.split('?')[0]?.split('/').at(-1) ?? '');
    const known = stored.get(name);
    const isTaken = method === 'POST' && (known !== undefined || refuses(name));
    if (isTaken) taken++;
    else stored.set(name, { ...known, ...sent });
    const answer = isTaken ? { kind: 'Status', code: 409, reason: 'AlreadyExists' } : stored.get(name);
    return jsonAnswer(isTaken ? 409 : 200, answer);
  };
  const clock = manualClock(1_700_000_000_123);
  const recorder = (host: string) =>
    createEventRecorder({
      client: createClient(transport, host),
      component: 'proxy',
      host,
      clock,
      logger: silentLogger,
      signal: new AbortController().signal,
    });
  return { stored, recorder, taken: () => taken };
}

test('events that two nodes record about one object in the same millisecond are both kept', async () => {
  const server = eventServer();
  const recorders = ['node-1', 'node-2'].map((host) => server.recorder(host));
  for (const [index, recorder] of recorders.entries())
    recorder.event(SERVICE, 'Normal', 'AddressAnnounced', `address ${index}`, RESOURCES.services);
  await Promise.all(recorders.map((recorder) => recorder.flush()));
  assert.deepEqual([...server.stored.values()].map(({ message }) => message).sort(), [
    'address 0',
    'address 1',
  ]);
  assert.equal(server.taken(), 0);
});

test('an event whose name is taken is recorded under another name', async () => {
  const server = eventServer();
  // The same component of the same node, twice: a process and its successor.
  for (const message of ['one', 'two']) {
    const recorder = server.recorder('node-1');
    recorder.event(SERVICE, 'Normal', 'Started', message, RESOURCES.services);
    await recorder.flush();
  }
  assert.deepEqual(
    [...server.stored.values()].map(({ message }) => message),
    ['one', 'two'],
  );
  assert.equal(server.taken(), 1);
  for (const name of server.stored.keys()) assert.match(name, /^a\.[0-9a-f]{16}$/);
});

test('a server that refuses all names is asked ten times, and later events are written', async () => {
  let refuse = true;
  const server = eventServer(() => refuse);
  const recorder = server.recorder('node-1');
  recorder.event(SERVICE, 'Normal', 'Started', 'one', RESOURCES.services);
  await recorder.flush();
  assert.deepEqual([server.taken(), server.stored.size], [10, 0]);
  refuse = false;
  recorder.event(SERVICE, 'Normal', 'Started', 'two', RESOURCES.services);
  await recorder.flush();
  assert.equal(server.stored.size, 1);
});
