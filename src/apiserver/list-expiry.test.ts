import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { COMPACTION_MS, expireLists } from './list-expiry.ts';
import { Store } from './store.ts';

const MINUTE = 60_000;

/** Minutes after the first page at which the next one is requested: whether it is still of the same version. */
const AGES: readonly (readonly [minutes: number, isServed: boolean])[] = [
  [0, true],
  [4, true],
  [10, false],
  [60, false],
];

for (const [minutes, isServed] of AGES) {
  test(`${minutes} minutes after its first page, a list of that version is ${isServed ? 'served' : 'too old'}`, () => {
    const store = new Store(':memory:');
    const clock = manualClock();
    const put = (name: string) =>
      store.put('configmaps', `n/${name}`, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });
    const end = expireLists({ store, clock });
    put('first');
    const { version } = store;
    put('second');
    clock.advance(minutes * MINUTE);
    const names = store.listAt(version, 'configmaps')?.map(({ object }) => object.metadata.name);
    assert.deepEqual(names, isServed ? ['first'] : undefined);
    assert.equal(store.listAt(store.version, 'configmaps')?.length, 2);
    assert.equal(store.since('configmaps', version)?.length, 1);
    end();
    clock.advance(10 * COMPACTION_MS);
    store.close();
  });
}
