import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { KINDS } from '../kinds.ts';
import type { ApiObject } from '../object.ts';
import { Store } from '../store.ts';
import type { EventEncoding } from './event-encoding.ts';
import { createWatchHub } from './watch-hub.ts';

const kind = KINDS.find((one) => one.plural === 'configmaps');
assert.ok(kind);
const store = new Store(':memory:');
after(() => store.close());

function counting(): { encoding: EventEncoding; count: () => number } {
  let count = 0;
  const encoding: EventEncoding = {
    contentType: 'application/json',
    shared: 'json',
    event(type, stored) {
      count++;
      return Buffer.from(`${type} ${stored.object.metadata.name}\n`);
    },
    bookmark: () => Buffer.alloc(0),
    failure: () => Buffer.alloc(0),
  };
  return { encoding, count: () => count };
}

const everything = { namespace: undefined, converted: false, matches: () => true };
const object = (name: string): ApiObject => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });

test('a change is encoded once for all watchers, and many changes are combined into few writes', () => {
  const clock = manualClock(0);
  const hub = createWatchHub(store, clock);
  const { encoding, count } = counting();
  const received: string[][] = Array.from({ length: 100 }, () => []);
  const watchers = received.map((list) => ({ receive: (bytes: Buffer) => list.push(bytes.toString()) }));
  const subject = { collection: kind.collection, filter: everything, selector: '', encoding };
  const groups = watchers.map((watcher) => hub.join(subject, watcher));
  for (let i = 0; i < 10; i++) store.put(kind.collection, `/hub-${i}`, object(`hub-${i}`));
  clock.advance(100);
  assert.equal(count(), 10);
  for (const list of received) {
    assert.equal(list.length, 2);
    assert.equal(list.join(''), Array.from({ length: 10 }, (_, i) => `ADDED hub-${i}\n`).join(''));
  }
  for (const [i, group] of groups.entries()) {
    const watcher = watchers[i];
    if (watcher) group.remove(watcher);
  }
});

test('two groups with the same encoding share the encoded change', () => {
  const clock = manualClock(0);
  const hub = createWatchHub(store, clock);
  const { encoding, count } = counting();
  const watcher = { receive() {} };
  const join = (selector: string) =>
    hub.join({ collection: kind.collection, filter: everything, selector, encoding }, watcher);
  const groups = [join('a=b'), join('c=d')];
  store.put(kind.collection, '/shared', object('shared'));
  assert.equal(count(), 1);
  for (const group of groups) group.remove(watcher);
});

test('a new watcher does not receive events that the group buffered before', () => {
  const clock = manualClock(0);
  const hub = createWatchHub(store, clock);
  const { encoding } = counting();
  const subject = { collection: kind.collection, filter: everything, selector: '', encoding };
  const early = Array.from({ length: 50 }, () => ({ receive() {} }));
  for (const watcher of early) hub.join(subject, watcher);
  for (let i = 0; i < 3; i++) store.put(kind.collection, `/held-${i}`, object(`held-${i}`));
  const seen: string[] = [];
  const late = { receive: (bytes: Buffer) => seen.push(bytes.toString()) };
  hub.join(subject, late);
  store.put(kind.collection, '/new', object('new'));
  clock.advance(100);
  assert.deepEqual(seen, ['ADDED new\n']);
});
