import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import type { Handlers } from './followed-objects.ts';
import { type ObjectCache, openObjectCache } from './object-cache.ts';
import type { ConfigMap } from './types.ts';

let folder: string;
let clock: ManualClock;
let cache: ObjectCache;
let warnings: string[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-objects-'));
  clock = manualClock();
  warnings = [];
  const logger = { ...silentLogger, warn: (_: object, text: string) => void warnings.push(text) };
  cache = openObjectCache({ folder: join(folder, 'objects'), clock, logger });
});
afterEach(async () => {
  await cache.close();
  rmSync(folder, { recursive: true, force: true });
});

const object = (name: string, value = ''): ConfigMap => ({ metadata: { name }, data: { value } });

/** An informer whose objects a test changes. */
function informer(cachedAt: number | null = null) {
  const objects: ConfigMap[] = [];
  let handlers: Handlers<ConfigMap> = {};
  return {
    cachedAt,
    hasSynced: true,
    lastContact: clock.now(),
    list: () => objects,
    handle(given: Handlers<ConfigMap>) {
      handlers = given;
      return () => {};
    },
    add(one: ConfigMap) {
      objects.push(one);
      handlers.onAdd?.(one);
    },
  };
}
const written = (name: string) => cache.read<ConfigMap>(name)?.objects.map((one) => one.metadata?.name);

test('objects are written some seconds after a change, and read with their time', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  clock.advance(2000);
  maps.add(object('b', 'é\n'));
  assert.equal(cache.read('maps'), null);
  clock.advance(8000);
  const found = await eventually(
    () => cache.read<ConfigMap>('maps'),
    (one) => one !== null,
  );
  assert.deepEqual(found, { at: clock.now(), objects: [object('a'), object('b', 'é\n')] });
});

test('closing writes what has changed', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  await cache.close();
  assert.deepEqual(written('maps'), ['a']);
});

test('objects of an earlier run do not replace the file', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  await cache.close();
  const before = readFileSync(join(folder, 'objects', 'maps.ndjson'), 'utf8');
  const next = openObjectCache({ folder: join(folder, 'objects'), clock, logger: silentLogger });
  const cached = informer(clock.now());
  next.keep('maps', cached);
  cached.add(object('a'));
  clock.advance(60_000);
  await next.close();
  assert.equal(readFileSync(join(folder, 'objects', 'maps.ndjson'), 'utf8'), before);
});

/** Reads as a later process does. */
const readAgain = () =>
  openObjectCache({ folder: join(folder, 'objects'), clock, logger: silentLogger }).read<ConfigMap>('maps');

test('objects that do not change are as old as the last contact with the server, not as the last change', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  clock.advance(10_000);
  await eventually(() => cache.read('maps') !== null);
  for (const minute of [1, 2]) {
    clock.advance(30_000);
    maps.lastContact = clock.now();
    clock.advance(30_000);
    await eventually(() => readAgain()?.at === maps.lastContact);
    assert.equal(cache.read('maps')?.at, maps.lastContact, `minute ${minute}`);
  }
});

for (const [what, fields] of [
  ['objects of an earlier run', { cachedAt: 1, hasSynced: true }],
  ['objects of which no list has arrived', { cachedAt: null, hasSynced: false }],
] as const) {
  test(`${what} do not become younger while the server cannot be reached`, async () => {
    const maps = informer();
    cache.keep('maps', maps);
    maps.add(object('a'));
    await cache.close();
    const before = readAgain();
    assert.ok(before);
    const next = openObjectCache({ folder: join(folder, 'objects'), clock, logger: silentLogger });
    clock.advance(60_000);
    next.keep('maps', { ...informer(), ...fields });
    clock.advance(60_000);
    await next.close();
    assert.equal(readAgain()?.at, before.at);
  });
}

test('a change that could not be written does not make the file younger', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  await cache.close();
  const at = readAgain()?.at;
  assert.ok(at !== undefined);
  const next = openObjectCache({ folder: join(folder, 'objects'), clock, logger: silentLogger });
  const later = informer();
  next.keep('maps', later);
  // A folder of this name cannot be replaced by a file.
  mkdirSync(join(folder, 'objects', 'maps.ndjson.new'));
  clock.advance(60_000);
  later.lastContact = clock.now();
  later.add(object('b'));
  await next.close();
  assert.equal(readAgain()?.at, at);
  rmSync(join(folder, 'objects', 'maps.ndjson.new'), { recursive: true });
});

test('damaged times of contacts are reported, and the time of the file is used', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  await cache.close();
  writeFileSync(join(folder, 'objects', 'contacts.json'), '{"maps":');
  const logger = { ...silentLogger, warn: (_: object, text: string) => void warnings.push(text) };
  const next = openObjectCache({ folder: join(folder, 'objects'), clock, logger });
  assert.equal(next.read('maps')?.at, clock.now());
  assert.match(warnings.join(), /the time of the last contact cannot be used/);
  await next.close();
});

test('many objects are written without a break in their lines', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  const names = Array.from({ length: 2000 }, (_, i) => `object-${i}`);
  for (const name of names) maps.add(object(name, 'x'.repeat(100)));
  await cache.close();
  assert.deepEqual(written('maps'), names);
});

test('only the owner may read the files', async () => {
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  await cache.close();
  assert.equal(statSync(join(folder, 'objects')).mode & 0o777, 0o700);
  assert.equal(statSync(join(folder, 'objects', 'maps.ndjson')).mode & 0o777, 0o600);
  assert.equal(statSync(join(folder, 'objects', 'contacts.json')).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(join(folder, 'objects')).sort(), ['contacts.json', 'maps.ndjson']);
});

for (const [what, text, warned] of [
  ['an empty file', '', true],
  ['half an object', '{"format":1,"at":5}\n{"metadata":', true],
  ['another format', '{"format":2,"at":5}\n{}\n', false],
  ['no time', '{"format":1}\n', false],
] as const) {
  test(`${what} is not used`, () => {
    mkdirSync(join(folder, 'objects'));
    writeFileSync(join(folder, 'objects', 'maps.ndjson'), text);
    assert.equal(cache.read('maps'), null);
    assert.equal(warnings.length, warned ? 1 : 0);
  });
}

test('a folder that cannot be written is reported, and tried again after the next change', async () => {
  writeFileSync(join(folder, 'objects'), 'a file');
  const maps = informer();
  cache.keep('maps', maps);
  maps.add(object('a'));
  clock.advance(10_000);
  await eventually(() => warnings.length === 1);
  rmSync(join(folder, 'objects'));
  await cache.close();
  assert.deepEqual(written('maps'), ['a']);
});
