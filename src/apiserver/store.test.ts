import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import type { ApiObject } from './object.ts';
import { Store, type StoreEvent } from './store.ts';

const object = (name: string, value = ''): ApiObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  value,
});

test('versions are consecutive across collections', () => {
  const store = new Store(':memory:');
  const start = store.version;
  store.put('a', 'ns/x', object('x'));
  store.put('b', 'ns/x', object('x'));
  assert.equal(store.remove('a', 'ns/x')?.version, start + 3);
  assert.equal(store.version, start + 3);
  assert.equal(store.remove('a', 'ns/x'), undefined);
  store.close();
});

for (const [what, fails, stored] of [
  ['has written all its changes', false, ['x', 'y']],
  ['that fails has written nothing', true, []],
] as const) {
  test(`a batch ${what}`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'store-'));
    try {
      const store = new Store(join(folder, 'data'));
      const run = () =>
        store.batch(() => {
          for (const key of ['x', 'y']) store.put('c', key, object(key));
          if (fails) throw new Error('refused');
        });
      if (fails) assert.throws(run, /refused/);
      else run();
      const written = fails ? null : store.version;
      store.close();
      const reopened = new Store(join(folder, 'data'));
      assert.deepEqual(
        reopened.list('c').map(({ key }) => key),
        stored,
      );
      if (written !== null) assert.equal(reopened.version, written);
      reopened.close();
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
}

test('lists are sorted by key, for all namespaces or one', () => {
  const store = new Store(':memory:');
  for (const key of ['b/y', 'a/z', 'b/x', 'a/a']) store.put('c', key, object(key));
  assert.deepEqual(
    store.list('c').map(({ key }) => key),
    ['a/a', 'a/z', 'b/x', 'b/y'],
  );
  assert.deepEqual(
    store.list('c', 'b').map(({ key }) => key),
    ['b/x', 'b/y'],
  );
  store.close();
});

test('a list at an earlier version shows the objects of that time', () => {
  const store = new Store(':memory:');
  store.put('c', 'n/a', object('a', 'old'));
  store.put('c', 'n/b', object('b'));
  const { version } = store;
  store.put('c', 'n/a', object('a', 'new'));
  store.remove('c', 'n/b');
  store.put('c', 'n/c', object('c'));
  assert.deepEqual(
    store.listAt(version, 'c')?.map(({ object: stored }) => [stored.metadata.name, stored['value']]),
    [
      ['a', 'old'],
      ['b', ''],
    ],
  );
  store.close();
});

test('the changes since a version come after it; a deleted object has the version of its deletion', () => {
  const store = new Store(':memory:');
  const seen: StoreEvent[] = [];
  const end = store.listen('c', (event) => seen.push(event));
  store.put('c', 'n/a', object('a'));
  const { version } = store;
  store.put('other', 'n/a', object('a'));
  store.remove('c', 'n/a');
  end();
  store.put('c', 'n/z', object('z'));
  assert.equal(seen.length, 2);
  assert.equal(seen[1]?.last.object.metadata.resourceVersion, String(version + 2));
  assert.deepEqual(
    store.since('c', version)?.map((event) => event.version),
    [version + 2, version + 3],
  );
  store.close();
});

test('history is limited: earlier versions cannot be watched', () => {
  const store = new Store(':memory:');
  const { version } = store;
  for (let i = 0; i < 31_000; i++) store.put('c', 'n/a', object('a', String(i)));
  assert.equal(store.since('c', version), null);
  assert.ok(store.oldestWatchable > version);
  assert.notEqual(store.since('c', store.oldestWatchable), null);
  store.close();
});

test('history is limited by bytes: a few large changes are dropped like many small ones', () => {
  const store = new Store(':memory:');
  const { version } = store;
  for (let i = 0; i < 60; i++) store.put('c', 'n/a', object('a', `${i}`.padEnd(1_000_000)));
  assert.equal(store.since('c', version), null);
  assert.ok((store.since('c', store.oldestWatchable) ?? []).length <= 48);
  store.close();
});

test('a killed process loses no acknowledged write', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-store-'));
  try {
    const file = join(folder, 'data.db');
    const writer = spawn(
      process.execPath,
      [
        '--input-type=module-typescript',
        '-e',
        `import { Store } from ${JSON.stringify(join(import.meta.dirname, 'store.ts'))};
         import { writeSync } from 'node:fs';
         const store = new Store(${JSON.stringify(file)});
         for (let i = 0; ; i++) {
           store.put('c', 'n/' + i, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: String(i) } });
           writeSync(1, store.version + ' ' + i + '\\n');
         }`,
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let last = '';
    let count = 0;
    for await (const line of createInterface({ input: writer.stdout })) {
      last = line;
      if (++count === 500) writer.kill('SIGKILL');
    }
    const [version, index] = last.split(' ').map(Number);
    const store = new Store(file);
    assert.ok(store.version >= (version ?? 0), `version ${store.version} is not before ${version}`);
    for (let i = 0; i <= (index ?? 0); i++) assert.ok(store.get('c', `n/${i}`), `object ${i} is there`);
    store.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
