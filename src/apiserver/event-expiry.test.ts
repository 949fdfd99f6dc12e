import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { EVENT_TTL_MS, expireEvents } from './event-expiry.ts';
import { Store } from './store.ts';

const MINUTE = 60_000;

test('Events are deleted an hour after their last write; other objects are not', () => {
  const store = new Store(':memory:');
  const clock = manualClock();
  const put = (collection: string, name: string) =>
    store.put(collection, `n/${name}`, { apiVersion: 'v1', kind: 'Event', metadata: { name } });
  const names = () => store.list('events').map(({ object }) => object.metadata.name);
  put('events', 'of-the-earlier-run');
  const end = expireEvents({ store, clock, logger: silentLogger });
  put('events', 'single');
  put('events', 'repeated');
  put('configmaps', 'settings');
  clock.advance(EVENT_TTL_MS - 10 * MINUTE);
  put('events', 'repeated');
  assert.deepEqual(names(), ['of-the-earlier-run', 'repeated', 'single']);
  clock.advance(11 * MINUTE);
  assert.deepEqual(names(), ['repeated']);
  clock.advance(EVENT_TTL_MS);
  assert.deepEqual(names(), []);
  assert.equal(store.count('configmaps'), 1);
  end();
  store.close();
});
