import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import type { ApiObject } from './object.ts';
import { Store } from './store.ts';

let folder = '';
let store: Store;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'small', folder]);
  store = new Store(join(folder, 'data.db'));
});
afterEach(() => {
  store.close();
  execFileSync('umount', [folder]);
  rmSync(folder, { recursive: true, force: true });
});

const object = (name: string, size: number, more: object = {}): ApiObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, ...more },
  value: 'x'.repeat(size),
});
const put = (name: string, size = 10, more: object = {}) =>
  store.put('c', `n/${name}`, object(name, size, more));
const FULL = {
  code: 507,
  reason: 'InsufficientStorage',
  message: /the disk of .*data\.db is full \(0 MiB of 24 MiB free\)/,
};

/** Writes objects until the disk takes no more; returns their names. */
function fillWithObjects(): string[] {
  const names: string[] = [];
  for (let i = 0; i < 1000; i++) {
    try {
      put(`big-${i}`, 100_000);
    } catch (error) {
      assert.equal((error as { code?: unknown }).code, 507, String(error));
      return names;
    }
    names.push(`big-${i}`);
  }
  throw new Error('the disk was never full');
}

/** Takes what another program leaves of the disk. */
function fillWithFile(): string {
  const file = join(folder, 'filler');
  const { bavail, bsize } = statfsSync(folder);
  try {
    writeFileSync(file, Buffer.alloc(bavail * bsize));
  } catch (error) {
    assert.equal((error as { code?: unknown }).code, 'ENOSPC');
  }
  return file;
}

test('writes are refused and change nothing, reads continue, and acknowledged writes are kept', () => {
  const names = fillWithObjects();
  fillWithFile();
  const { version } = store;
  for (let i = 0; i < 3; i++) assert.throws(() => put('more', 100_000), FULL);
  assert.equal(store.version, version);
  assert.equal(store.get('c', 'n/more'), undefined);
  assert.equal(store.list('c').length, names.length);
  assert.match(store.problem() ?? '', /is full/);
  store.close();
  store = new Store(join(folder, 'data.db'));
  assert.equal(store.version, version);
  assert.equal(store.list('c').length, names.length);
});

test('deletions and changes of objects that are being deleted succeed', () => {
  put('leaving', 10);
  const names = fillWithObjects();
  fillWithFile();
  put('leaving', 10, { deletionTimestamp: '2026-01-01T00:00:00Z' });
  for (const name of names) assert.ok(store.remove('c', `n/${name}`), name);
});

test('deleted objects free space within the database', () => {
  const names = fillWithObjects();
  fillWithFile();
  assert.throws(() => put('more', 100_000), FULL);
  for (const name of names) store.remove('c', `n/${name}`);
  put('more', 100_000);
});

test('after space is freed on the disk, writes succeed without a restart', () => {
  fillWithObjects();
  const file = fillWithFile();
  store.remove('c', 'n/big-0');
  assert.throws(() => put('more', 1_000_000), FULL);
  rmSync(file, { force: true });
  execFileSync('mount', ['-o', 'remount,size=64m', folder]);
  put('more', 1_000_000);
  assert.equal(store.problem(), null);
});

test('before space is reserved, as at a start, writes succeed while the disk has room for it', () => {
  let reserve = () => {};
  const file = join(folder, 'late.db');
  let isCancelled = false;
  const late = new Store(file, (run) => {
    reserve = run;
    return () => {
      isCancelled = true;
    };
  });
  const write = () => late.put('c', 'n/late', object('late', 10));
  write();
  assert.equal(statSync(`${file}.reserve`).size, 0);
  const filler = fillWithFile();
  assert.throws(write, { code: 507 });
  rmSync(filler);
  write();
  reserve();
  assert.ok(statSync(`${file}.reserve`).size > 0);
  late.close();
  assert.ok(isCancelled);
});
