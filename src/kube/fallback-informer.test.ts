import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { informerWithFallback } from './fallback-informer.ts';
import { map, script, startScripted } from './testing/scripted-server.ts';

const ROWS = [
  { name: 'the first may be read', refuse: null, requests: '/api/v1/configmaps', objects: ['own', 'other'] },
  {
    name: 'the first is refused',
    refuse: 403,
    requests: '/api/v1/configmaps own',
    objects: ['own'],
  },
];

for (const { name, refuse, requests, objects } of ROWS) {
  test(`${name}: objects, indices and handlers are those of the informer that may read`, async () => {
    const [all, own] = [script(), script()];
    all.objects = [map('own', 1), map('other', 2)];
    own.objects = [map('own', 1)];
    all.refuse = refuse;
    const clock = manualClock();
    const ending = new AbortController();
    const refused = Promise.withResolvers<void>();
    const asked: string[] = [];
    const informer = informerWithFallback(
      startScripted(all.transport, clock, ending.signal, { onMissingRule: () => refused.resolve() }),
      refused.promise,
      () => {
        asked.push('own');
        return startScripted(own.transport, clock, ending.signal, {});
      },
    );
    const events: string[] = [];
    informer.addIndex('uid', ({ metadata }) => [metadata?.uid ?? '']);
    const stop = informer.handle({
      onAdd: ({ metadata }) => events.push(`+${metadata?.name}`),
      onDelete: ({ metadata }) => events.push(`-${metadata?.name}`),
    });
    await informer.synced;
    assert.equal([all.requests[0]?.pathname, ...asked].join(' '), requests);
    const names = () => informer.list().map(({ metadata }) => metadata?.name);
    assert.deepEqual(names(), objects);
    assert.deepEqual(
      events,
      objects.map((one) => `+${one}`),
    );
    assert.equal(informer.byIndex('uid', 'own').length, 1);
    assert.equal(informer.get('n/own')?.metadata?.uid, 'own');
    const server = refuse === null ? all : own;
    await eventually(
      async () => server.watch,
      (watch) => watch !== null,
    );
    server.watch?.send('DELETED', map('own', 20));
    await eventually(
      async () => events.at(-1),
      (last) => last === '-own',
    );
    stop();
    server.watch?.send('ADDED', map('late', 21));
    await eventually(
      async () => names().includes('late'),
      (isKnown) => isKnown,
    );
    assert.equal(events.at(-1), '-own', 'removed handlers are not called');
    ending.abort(new Error('the end'));
  });
}

test('a refusal that comes later replaces the informer for handlers, too', async () => {
  const [all, own] = [script(), script()];
  all.objects = [map('own', 1)];
  own.objects = [map('own', 3)];
  const clock = manualClock();
  const ending = new AbortController();
  const refused = Promise.withResolvers<void>();
  const informer = informerWithFallback(
    startScripted(all.transport, clock, ending.signal, {}),
    refused.promise,
    () => startScripted(own.transport, clock, ending.signal, {}),
  );
  const versions: (string | undefined)[] = [];
  informer.handle({ onAdd: ({ metadata }) => versions.push(metadata?.resourceVersion) });
  await informer.synced;
  refused.resolve();
  await eventually(
    async () => versions.join(),
    (all) => all === '1,3',
  );
  assert.equal(informer.get('n/own')?.metadata?.resourceVersion, '3');
  ending.abort(new Error('the end'));
});
