import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import type { Informer } from './informer.ts';
import { bench, map, type Script, script, startScripted, until } from './testing/scripted-server.ts';
import type { ApiRequest } from './transport.ts';
import type { ConfigMap } from './types.ts';

test('lists in pages, then follows changes from the version of the list', async () => {
  const many = Array.from({ length: 401 }, (_, i) => map(`m${i}`, 5));
  await bench(many, async ({ server, informer, events }) => {
    assert.equal(informer.list().length, 401);
    assert.equal(server.requests.filter((url) => !url.searchParams.has('watch')).length, 3);
    assert.equal(server.requests.at(-1)?.searchParams.get('resourceVersion'), '10');
    assert.equal(server.requests.at(-1)?.searchParams.get('allowWatchBookmarks'), 'true');
    events.length = 0;
    server.watch?.send('ADDED', map('x', 11));
    server.watch?.send('MODIFIED', map('x', 12));
    server.watch?.send('DELETED', map('x', 13));
    await until(() => events.length === 3);
    assert.deepEqual(events, ['+x', '11>12', '-x']);
  });
});

test('stores and reports objects as transformed, whether listed, watched or recorded', async () => {
  const transform = ({ metadata }: ConfigMap) => ({ metadata: { ...metadata, labels: { seen: 'once' } } });
  const labels = (informer: Informer<ConfigMap>) => informer.list().map((one) => one.metadata?.labels);
  await bench(
    [map('a', 5, 'a', { long: 'text' })],
    async ({ server, informer, events }) => {
      assert.deepEqual(labels(informer), [{ seen: 'once' }]);
      server.watch?.send('MODIFIED', map('a', 11, 'a', { long: 'text' }));
      await until(() => events.includes('5>11'));
      informer.record(map('b', 12, 'b', { long: 'text' }));
      assert.deepEqual(labels(informer), [{ seen: 'once' }, { seen: 'once' }]);
    },
    { transform },
  );
});

for (const how of ['end', 'break'] as const) {
  test(`a watch that ${how}s is resumed after the last version seen, bookmarks included`, async () => {
    await bench([map('a', 5)], async ({ server, clock, events, watches, informer }) => {
      server.watch?.send('MODIFIED', map('a', 11));
      server.watch?.send('BOOKMARK', { metadata: { resourceVersion: '20' } });
      await until(() => events.length === 2);
      await until(() => server.watch !== null);
      await new Promise((resolve) => setImmediate(resolve));
      await new Promise((resolve) => setImmediate(resolve));
      server.watch?.[how]();
      server.watch = null;
      await until(() => {
        clock.advance(100);
        return server.watch !== null;
      });
      await watches(2);
      assert.equal(server.requests.at(-1)?.searchParams.get('resourceVersion'), '20');
      assert.equal(informer.get('n/a')?.metadata?.resourceVersion, '11');
    });
  });
}

test('an expired version leads to a new list, whose differences are reported', async () => {
  await bench([map('a', 5), map('b', 6), map('c', 7)], async ({ server, clock, events, informer }) => {
    events.length = 0;
    server.objects = [map('a', 30), map('c', 31, 'another c'), map('d', 32)];
    server.version = 40;
    server.watch?.send('ERROR', { kind: 'Status', code: 410, reason: 'Expired', message: 'too old' });
    await until(() => {
      clock.advance(10);
      return informer.get('n/d') !== undefined;
    });
    assert.deepEqual(events, ['-b', '5>30', '-c', '+c', '+d']);
  });
});

test('a 410 in response to the watch leads to a new list', async () => {
  await bench([map('a', 5)], async ({ server, clock, informer }) => {
    server.refusals.push(410);
    server.objects = [map('a', 50)];
    server.version = 60;
    server.watch?.end();
    await until(() => {
      clock.advance(100);
      return informer.get('n/a')?.metadata?.resourceVersion === '50';
    });
  });
});

test('duplicate and late events change nothing', async () => {
  await bench([map('a', 5)], async ({ server, events, informer }) => {
    server.watch?.send('MODIFIED', map('a', 11));
    server.watch?.send('MODIFIED', map('a', 11));
    server.watch?.send('ADDED', map('a', 7));
    server.watch?.send('ADDED', map('b', 12));
    await until(() => informer.get('n/b') !== undefined);
    assert.deepEqual(events, ['+a', '5>11', '+b']);
    assert.equal(informer.get('n/a')?.metadata?.resourceVersion, '11');
  });
});

test('a silent watch is ended and restarted; lastContact shows the silence', async () => {
  await bench([map('a', 5)], async ({ server, clock, informer, watches }) => {
    const contact = informer.lastContact;
    clock.advance(149_000);
    assert.equal(informer.lastContact, contact);
    assert.equal(server.requests.length, 2);
    server.watch = null;
    await until(() => {
      clock.advance(1000);
      return server.watch !== null;
    });
    await watches(2);
    assert.ok(informer.lastContact > contact);
  });
});

test('attempts to reach a server that does not answer do not count as contact', async () => {
  await bench([map('a', 5)], async ({ server, clock, informer }) => {
    const contact = informer.lastContact;
    const before = server.requests.length;
    server.refuse = 503;
    server.watch?.end();
    await until(() => {
      clock.advance(1000);
      return server.requests.length > before + 3;
    });
    assert.equal(informer.lastContact, contact);
  });
});

test('an optional resource is requested every 5 s from a server that starts, then every ten minutes', async () => {
  await bench(
    [map('a', 5)],
    async ({ server, clock, informer }) => {
      server.refuse = 403;
      server.watch?.end();
      const at: number[] = [];
      let seen = server.requests.length;
      const start = clock.now();
      while (clock.now() < start + 1_500_000) {
        clock.advance(250);
        for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
        if (server.requests.length > seen) at.push(clock.now() - start);
        seen = server.requests.length;
      }
      const pauses = at.slice(1).map((time, i) => time - (at[i] ?? 0));
      const long = pauses.filter((pause) => pause > 5250);
      assert.deepEqual(
        long.map((pause) => Math.round(pause / 60_000)),
        [10, 10],
      );
      assert.ok((at.at(-3) ?? 0) >= 115_000, `asked often until ${at.at(-3)}`);
      assert.ok(informer.get('n/a'));
      server.refuse = null;
      server.watch = null;
      await until(() => {
        clock.advance(60_000);
        return server.watch !== null;
      });
    },
    { optional: true },
  );
});

/** Answers of a server that returns, and the longest pause between two attempts. */
const RETURNS: { status: number; minutes: number; most: number }[] = [
  { status: 403, minutes: 1.5, most: 5000 },
  { status: 404, minutes: 1.5, most: 5000 },
  { status: 429, minutes: 5, most: 5000 },
  { status: 500, minutes: 5, most: 5000 },
  { status: 401, minutes: 5, most: 5000 },
  { status: 403, minutes: 10, most: 30_000 },
  { status: 404, minutes: 10, most: 30_000 },
];

for (const { status, minutes, most } of RETURNS) {
  test(`a server that answers ${status} for ${minutes} minutes is asked every ${most / 1000} s at the latest`, async () => {
    await bench(
      [map('a', 5)],
      async ({ server, clock }) => {
        server.refuse = status;
        server.watch?.end();
        const end = clock.now() + minutes * 60_000;
        const at: number[] = [];
        let seen = server.requests.length;
        while (clock.now() < end) {
          clock.advance(250);
          for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
          if (server.requests.length > seen) at.push(clock.now());
          seen = server.requests.length;
        }
        const pauses = at.slice(1).map((time, i) => time - (at[i] ?? 0));
        const longest = Math.max(...pauses);
        assert.ok(longest > most / 2 && longest <= most + 250, `${longest} of ${pauses}`);
      },
      { random: () => 0.999 },
    );
  });
}

/** The messages of a client without a rule, once each, while the server answers as listed; 0: as usual. */
const MISSING: { name: string; answers: number[]; optional?: true; said: string[] }[] = [
  {
    name: 'a forbidden watch',
    answers: [403, 403, 403, 403, 0],
    said: [
      'warn: not allowed to watch configmaps: bind user u to a ClusterRole with the rule {apiGroups: [""], resources: ["configmaps"], verbs: ["list", "watch"]}',
      'rule: watch configmaps',
      'info: allowed to list and watch configmaps now',
      'rule: none',
    ],
  },
  {
    name: 'a list that is forbidden, then only the watch',
    answers: [410, 403, 403, 0, 403, 403, 0],
    said: [
      'info: watch expired; listing again',
      'warn: not allowed to list configmaps: bind user u to a ClusterRole with the rule {apiGroups: [""], resources: ["configmaps"], verbs: ["list", "watch"]}',
      'rule: list configmaps',
      'warn: not allowed to watch configmaps: bind user u to a ClusterRole with the rule {apiGroups: [""], resources: ["configmaps"], verbs: ["list", "watch"]}',
      'rule: watch configmaps',
      'info: allowed to list and watch configmaps now',
      'rule: none',
    ],
  },
  {
    name: 'an unreachable server',
    answers: [500, 500, 0],
    said: [
      'warn: lost the connection to the API server: no',
      'info: the API server answers again, after 0 s',
    ],
  },
  {
    name: 'a refusal that is not about rules',
    answers: [404, 404, 0],
    said: ['warn: failed to watch configmaps: no'],
  },
  {
    name: 'an optional resource',
    answers: [403, 403],
    optional: true,
    said: ['info: failed to watch: User "u" cannot'],
  },
];

for (const { name, answers, optional, said } of MISSING) {
  test(`log of ${name}`, async () => {
    const heard: string[] = [];
    const logger: Logger = {
      ...silentLogger,
      info: (_fields, message) => heard.push(`info: ${message}`),
      warn: (_fields, message) => heard.push(`warn: ${message}`),
    };
    await bench(
      [map('a', 5)],
      async ({ server, clock }) => {
        server.refusals.push(...answers);
        server.watch?.end();
        await until(() => {
          clock.advance(optional ? 60_000 : 100);
          return server.refusals.length === 0 && heard.length >= said.length;
        });
        assert.deepEqual(heard, said);
      },
      {
        logger,
        ...(optional ? { optional } : {}),
        onMissingRule: (rule) => heard.push(`rule: ${rule ? `${rule.verb} ${rule.resource}` : 'none'}`),
      },
    );
  });
}

test('an end before the first list rejects the wait for it', async () => {
  const ending = new AbortController();
  const server = script();
  server.refuse = 503;
  const informer = startScripted(server.transport, manualClock(0), ending.signal, {});
  await until(() => server.requests.length > 0);
  ending.abort(new Error('the end'));
  await assert.rejects(informer.synced, /the end/);
});

test('an unreachable server is retried with increasing delays, and the copy remains', async () => {
  await bench([map('a', 5)], async ({ server, clock, informer }) => {
    const at: number[] = [];
    const before = server.requests.length;
    server.refusals.push(500, 500, 500, 500);
    server.watch?.end();
    let seen = before;
    await until(() => {
      clock.advance(5);
      if (server.requests.length > seen) at.push(clock.now());
      seen = server.requests.length;
      return at.length === 5;
    });
    const pauses = at.slice(1).map((time, i) => time - (at[i] ?? 0));
    assert.ok(
      pauses.every((pause, i) => i === 0 || pause > (pauses[i - 1] ?? 0)),
      `pauses grow: ${pauses}`,
    );
    assert.ok(informer.get('n/a'));
  });
});

test("one's own write is in the copy at once, and the watch's event about it is not a second one", async () => {
  await bench([map('a', 5)], async ({ server, events, informer }) => {
    informer.record(map('a', 11));
    informer.record(map('b', 12));
    assert.deepEqual(events, ['+a', '5>11', '+b']);
    server.watch?.send('MODIFIED', map('a', 11));
    server.watch?.send('ADDED', map('b', 12));
    server.watch?.send('DELETED', map('b', 13));
    await until(() => informer.get('n/b') === undefined);
    // An answer that comes later than the news of what happened after it.
    informer.record(map('b', 12));
    assert.equal(informer.get('n/b'), undefined);
    assert.deepEqual(events, ['+a', '5>11', '+b', '-b']);
  });
});

test('a handler that throws does not affect others', async () => {
  await bench([map('a', 5)], async ({ server, informer, events }) => {
    const late: string[] = [];
    informer.handle({
      onUpdate() {
        throw new Error('broken');
      },
    });
    informer.handle({ onAdd: () => late.push('+'), onUpdate: () => late.push('>') });
    server.watch?.send('MODIFIED', map('a', 11));
    await until(() => late.length === 2);
    assert.deepEqual(late, ['+', '>']);
    assert.deepEqual(events, ['+a', '5>11']);
  });
});

test('indexes follow the objects', async () => {
  await bench(
    [map('a', 5, 'a', { team: 'x' }), map('b', 6, 'b', { team: 'x' })],
    async ({ server, informer }) => {
      informer.addIndex('team', (object) => [object.metadata?.labels?.['team'] ?? '']);
      const names = (team: string) => informer.byIndex('team', team).map(({ metadata }) => metadata?.name);
      assert.deepEqual(names('x'), ['a', 'b']);
      server.watch?.send('MODIFIED', map('a', 11, 'a', { team: 'y' }));
      server.watch?.send('DELETED', map('b', 12, 'b', { team: 'x' }));
      await until(() => informer.get('n/b') === undefined);
      assert.deepEqual([names('x'), names('y')], [[], ['a']]);
    },
  );
});

const unreachable = () => Promise.reject(new Error('connect ECONNREFUSED 10.0.0.1:6443'));
const silent = ({ signal }: ApiRequest) =>
  new Promise<never>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));

for (const [what, { transport, refuse, after = 0, used }] of Object.entries({
  'cannot be reached': { transport: unreachable, used: true },
  'fails with 503': { refuse: 503, used: true },
  'does not know the credentials': { refuse: 401, used: true },
  'does not answer for five seconds': { transport: silent, after: 5000, used: true },
  'does not answer for less': { transport: silent, after: 4900, used: false },
  'forbids the list': { refuse: 403, used: false },
} as Record<string, { transport?: Script['transport']; refuse?: number; after?: number; used: boolean }>)) {
  test(`at the start, a server that ${what}: cached objects are ${used ? 'used' : 'not used'}`, async () => {
    const server = script();
    server.refuse = refuse ?? null;
    const clock = manualClock();
    const ending = new AbortController();
    const informer = startScripted(transport ?? server.transport, clock, ending.signal, {
      cached: () => ({ objects: [map('a', 3)], at: 77 }),
    });
    clock.advance(after);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.deepEqual(
      [informer.hasSynced, informer.cachedAt, informer.list().length],
      used ? [true, 77, 1] : [false, null, 0],
    );
    ending.abort();
  });
}

test('cached objects are replaced by the server’s as soon as it answers', async () => {
  const server = script();
  server.refuse = 503;
  const clock = manualClock();
  const ending = new AbortController();
  const events: string[] = [];
  const informer = startScripted(server.transport, clock, ending.signal, {
    cached: () => ({ objects: [map('kept', 3), map('changed', 4), map('deleted', 5)], at: 77 }),
  });
  await informer.synced;
  informer.handle({
    onAdd: (object) => events.push(`+${object.metadata?.name}`),
    onUpdate: (object) => events.push(`~${object.metadata?.name}`),
    onDelete: (object) => events.push(`-${object.metadata?.name}`),
  });
  assert.deepEqual(events.splice(0), ['+kept', '+changed', '+deleted']);
  server.objects = [map('kept', 3), map('changed', 8), map('new', 9)];
  server.refuse = null;
  await until(() => {
    clock.advance(1000);
    return informer.cachedAt === null;
  });
  assert.deepEqual(events, ['-deleted', '~changed', '+new']);
  ending.abort();
});
