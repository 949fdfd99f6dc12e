import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { createClient } from './client.ts';
import { follow } from './informer.ts';
import { createServerContact, type ServerContact } from './server-contact.ts';
import { map, script, startScripted, until } from './testing/scripted-server.ts';
import { pass } from './testing/scripted-servers.ts';
import { RESOURCES } from './types.ts';

function heard(): { lines: string[]; logger: Logger } {
  const lines: string[] = [];
  const say = (level: string) => (_: object, message: string) => void lines.push(`${level}: ${message}`);
  return { lines, logger: { ...silentLogger, info: say('info'), warn: say('warn') } };
}

/** Calls of two followers, a second apart. */
type Call = 'a lost' | 'b lost' | 'a cached' | 'a answered' | 'b answered' | 'a end' | 'b end';

const CASES: { name: string; calls: Call[]; said: string[] }[] = [
  { name: 'nothing is lost', calls: ['a answered', 'b answered'], said: [] },
  {
    name: 'both lose the server, and again and again: one line, and one when both have it again',
    calls: ['a lost', 'b lost', 'a lost', 'b lost', 'a answered', 'b answered', 'a answered'],
    said: [
      'warn: lost the connection to the API server: refused',
      'info: the API server answers again, after 5 s',
    ],
  },
  {
    name: 'with objects of an earlier run',
    calls: ['a cached', 'b lost'],
    said: [
      'warn: lost the connection to the API server: refused; using the objects of 2026-01-02T03:04:05.000Z until it answers',
    ],
  },
  {
    name: 'twice',
    calls: ['a lost', 'a answered', 'b lost', 'b answered'],
    said: [
      'warn: lost the connection to the API server: refused',
      'info: the API server answers again, after 1 s',
      'warn: lost the connection to the API server: refused',
      'info: the API server answers again, after 1 s',
    ],
  },
  {
    name: 'an informer ends while it has lost the server',
    calls: ['a lost', 'b lost', 'b end', 'a answered', 'b lost'],
    said: [
      'warn: lost the connection to the API server: refused',
      'info: the API server answers again, after 3 s',
      'warn: lost the connection to the API server: refused',
    ],
  },
];

for (const { name, calls, said } of CASES) {
  test(`what informers log together: ${name}`, () => {
    const clock = manualClock();
    const { lines, logger } = heard();
    const contact = createServerContact({ clock, logger });
    const followers = { a: contact.follower('services'), b: contact.follower('nodes') };
    for (const call of calls) {
      const [who, what] = call.split(' ') as ['a' | 'b', string];
      const one = followers[who];
      if (what === 'lost') one.lost('refused', null);
      else if (what === 'cached') one.lost('refused', Date.UTC(2026, 0, 2, 3, 4, 5));
      else if (what === 'answered') one.answered();
      else one.end();
      clock.advance(1000);
    }
    assert.deepEqual(lines, said);
  });
}

/** The events after the server of two informers has returned, before the delays of both have ended. */
const RETURNS: {
  name: string;
  returns: (contact: ServerContact, clock: ManualClock, asked: () => boolean) => Promise<void> | void;
}[] = [
  { name: 'the transport has found the server', returns: (contact) => contact.wake() },
  {
    name: 'one of them has asked',
    returns: (_, clock, asked) =>
      until(() => {
        clock.advance(10);
        return asked();
      }),
  },
];

for (const { name, returns } of RETURNS) {
  test(`informers ask at once, without the rest of their delay: ${name}`, async () => {
    const clock = manualClock();
    const { lines, logger } = heard();
    const contact = createServerContact({ clock, logger });
    const ending = new AbortController();
    const servers = [script(), script()];
    const informers = servers.map((server, i) =>
      startScripted(server.transport, clock, ending.signal, { contact, logger, random: () => i * 0.99 }),
    );
    await Promise.all(informers.map(({ synced }) => synced));
    await until(() => servers.every(({ watch }) => watch !== null));
    for (const server of servers) {
      server.refuse = 503;
      server.watch?.break();
    }
    await pass(clock, 60_000);
    assert.deepEqual(lines, ['warn: lost the connection to the API server: no']);
    for (const server of servers) {
      server.refuse = null;
      server.watch = null;
    }
    const before = servers.map(({ requests }) => requests.length);
    await returns(contact, clock, () =>
      servers.some(({ requests }, i) => requests.length > (before[i] ?? 0)),
    );
    await pass(clock, 0);
    assert.ok(servers.every(({ watch }) => watch !== null));
    assert.equal(lines.length, 2);
    ending.abort();
  });
}

test('a watch that breaks is opened again without a line; nothing is lost, and nothing reported twice', async () => {
  const clock = manualClock();
  const { lines, logger } = heard();
  const ending = new AbortController();
  const server = script();
  server.objects = [map('a', 5)];
  const informer = startScripted(server.transport, clock, ending.signal, { logger });
  const events: string[] = [];
  informer.handle({
    onAdd: ({ metadata }) => events.push(`+${metadata?.name}`),
    onUpdate: ({ metadata }) => events.push(`~${metadata?.name}`),
  });
  await until(() => server.watch !== null);
  server.watch?.send('ADDED', map('b', 11));
  await until(() => informer.get('n/b') !== undefined);
  const first = server.watch;
  server.watch?.break();
  await until(() => {
    clock.advance(10);
    return server.watch !== first;
  });
  // Another server may send again what its cache has.
  server.watch?.send('ADDED', map('b', 11));
  server.watch?.send('ADDED', map('c', 12));
  await until(() => informer.get('n/c') !== undefined);
  assert.deepEqual(events, ['+a', '+b', '+c']);
  assert.equal(server.requests.at(-1)?.searchParams.get('resourceVersion'), '11');
  assert.deepEqual(lines, []);
  ending.abort();
});

test('informers of one client log together', async () => {
  const { lines, logger } = heard();
  const clock = manualClock();
  const ending = new AbortController();
  const client = createClient(() => Promise.reject(new Error('connect ECONNREFUSED')), 'test', clock);
  for (const resource of [RESOURCES.configMaps, RESOURCES.services])
    follow({ client, clock, random: () => 0, logger, signal: ending.signal }, resource);
  await pass(clock, 1000);
  ending.abort();
  assert.deepEqual(lines, ['warn: lost the connection to the API server: connect ECONNREFUSED']);
});
