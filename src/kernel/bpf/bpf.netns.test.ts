import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmdirSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createNetns, removeNetns } from '../netns.ts';
import { detachLink, linkCgroup, linkInfo, updateLink } from './link.ts';
import { BpfMap, createMap, isLike, type MapDefinition, mapInfo } from './map.ts';
import { netnsCookie } from './netns-cookie.ts';
import { makePinDirectory, openPin, pin, unmountPinDirectory, unpin } from './pin.ts';
import { canLoad, loadProgram, type ProgramSource, programInfo, programsAt } from './program.ts';

const word = (value: number) => new Uint8Array(Uint32Array.of(value).buffer);
const HASH: MapDefinition = { name: 'flt_hash', kind: 'hash', keySize: 4, valueSize: 8, maxEntries: 100 };
const value = (n: number) => new Uint8Array(BigUint64Array.of(BigInt(n)).buffer);

/** r0 = `result`; exit */
const returning = (result: number): ProgramSource => ({
  name: 'flt_return',
  type: 'sockAddress',
  attach: 'connect4',
  instructions: Uint8Array.of(0xb7, 0, 0, 0, result, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0),
  license: 'Apache-2.0',
});

describe('BPF maps', () => {
  test('elements are written, read, replaced and deleted', () => {
    const map = createMap(HASH);
    try {
      assert.equal(map.lookup(word(1)), null);
      map.update(word(1), value(10));
      map.update(word(1), value(11));
      assert.deepEqual(map.lookup(word(1)), value(11));
      assert.ok(map.delete(word(1)));
      assert.ok(!map.delete(word(1)));
    } finally {
      map.close();
    }
  });

  test('many elements are written by one call and read back', () => {
    for (const kind of ['hash', 'array', 'lruHash'] as const) {
      const map = createMap({ ...HASH, kind, maxEntries: 20_000 });
      try {
        const count = 10_000;
        const keys = new Uint8Array(Uint32Array.from({ length: count }, (_, i) => i).buffer);
        const values = new Uint8Array(BigUint64Array.from({ length: count }, (_, i) => BigInt(i * 3)).buffer);
        map.updateBatch(keys, values, count);
        const entries = map.entries();
        const shown = new Map(
          entries.map(([k, v]) => [Buffer.from(k).readUInt32LE(), Buffer.from(v).readBigUInt64LE()]),
        );
        // An LRU map keeps some elements free on each processor and may have dropped a few.
        assert.ok(
          kind === 'lruHash' ? shown.size > count * 0.9 : shown.size >= count,
          `${kind}: ${shown.size}`,
        );
        for (const [key, n] of shown) if (key < count) assert.equal(n, BigInt(key * 3));
      } finally {
        map.close();
      }
    }
  });

  test('a part of an array is read', () => {
    const map = createMap({ ...HASH, kind: 'array', maxEntries: 16 });
    try {
      for (let i = 0; i < 16; i++) map.update(word(i), value(i * 2));
      assert.deepEqual(map.range(0, 3), [0, 2, 4].map(value));
      assert.deepEqual(map.range(13, 3), [26, 28, 30].map(value));
      assert.deepEqual(map.range(14, 9), [28, 30].map(value));
    } finally {
      map.close();
    }
  });

  test('the error for a full map names it', () => {
    const map = createMap({ ...HASH, maxEntries: 2 });
    try {
      map.update(word(1), value(1));
      map.update(word(2), value(2));
      assert.throws(() => map.update(word(3), value(3)), /write BPF map flt_hash: E2BIG/);
    } finally {
      map.close();
    }
  });

  test('buffers whose size differs from the map’s never reach the kernel', () => {
    const map = createMap(HASH);
    try {
      assert.throws(() => map.lookup(new Uint8Array(3)), RangeError);
      assert.throws(() => map.update(word(1), new Uint8Array(7)), RangeError);
      assert.throws(() => map.updateBatch(word(1), value(1), 2), RangeError);
    } finally {
      map.close();
    }
  });

  test('socket storage can be created', () => {
    const map = createMap({
      name: 'flt_storage',
      kind: 'skStorage',
      keySize: 4,
      valueSize: 52,
      maxEntries: 0,
    });
    map.close();
  });

  test('attributes of a map are read and compared with a definition', () => {
    const map = createMap(HASH);
    try {
      const info = mapInfo(map.fd);
      assert.equal(info.maxEntries, 100);
      assert.ok(isLike(info, { ...HASH, maxEntries: 5 }));
      assert.ok(!isLike(info, { ...HASH, valueSize: 16 }));
      assert.ok(!isLike(info, { ...HASH, kind: 'array' }));
    } finally {
      map.close();
    }
  });
});

describe('BPF programs', () => {
  test('the error for a refused program has the verifier’s message', () => {
    // exit without a result
    const source = { ...returning(1), instructions: Uint8Array.of(0x95, 0, 0, 0, 0, 0, 0, 0) };
    assert.throws(
      () => loadProgram(source),
      (error: Error & { code?: string }) => error.code === 'EACCES' && /R0 !read_ok/.test(error.message),
    );
    assert.ok(!canLoad(source));
    assert.ok(canLoad(returning(1)));
  });
});

describe('BPF programs attached to control groups, and pins', () => {
  const suffix = randomBytes(3).toString('hex');
  const root = statfsSync('/sys/fs/cgroup').type === 0x63677270 ? '/sys/fs/cgroup' : '/sys/fs/cgroup/unified';
  const group = join(root, `flt-${suffix}`);
  const pins = `/run/flt-${suffix}-bpf`;
  let fd = -1;
  before(() => {
    mkdirSync(group);
    fd = openSync(group, 'r');
    makePinDirectory(pins);
  });
  after(() => {
    if (fd >= 0) closeSync(fd);
    rmdirSync(group);
    unmountPinDirectory(pins);
    rmdirSync(pins);
  });

  test('a link attaches, replaces and detaches; a pinned one outlives its descriptor', () => {
    const first = loadProgram(returning(1));
    const second = loadProgram(returning(0));
    const link = linkCgroup(first.fd, group, 'connect4');
    const path = join(pins, 'link');
    try {
      assert.deepEqual(programsAt(fd, 'connect4'), [programInfo(first.fd).id]);
      assert.equal(linkInfo(link.fd).cgroupId, statSync(group, { bigint: true }).ino);
      updateLink(link.fd, second.fd);
      assert.deepEqual(programsAt(fd, 'connect4'), [programInfo(second.fd).id]);
      pin(link.fd, path);
    } finally {
      link.close();
    }
    assert.equal(programsAt(fd, 'connect4').length, 1);
    const opened = openPin(path);
    assert.ok(opened !== null);
    detachLink(opened);
    assert.deepEqual(programsAt(fd, 'connect4'), []);
    assert.equal(linkInfo(opened).cgroupId, 0n);
    closeSync(opened);
    assert.ok(unpin(path));
    assert.ok(!unpin(path));
    assert.equal(openPin(path), null);
    first.close();
    second.close();
  });

  test('a pinned map is opened again with its contents', () => {
    const map = createMap(HASH);
    const path = join(pins, 'map');
    map.update(word(5), value(55));
    pin(map.fd, path);
    assert.throws(() => pin(map.fd, path), /EEXIST/);
    map.close();
    const opened = openPin(path);
    assert.ok(opened !== null);
    const again = new BpfMap(opened, HASH);
    assert.deepEqual(again.lookup(word(5)), value(55));
    again.close();
    unpin(path);
  });

  test('the file system for pins is unmounted only when nothing is pinned', () => {
    const map = createMap(HASH);
    const path = join(pins, 'map');
    pin(map.fd, path);
    unmountPinDirectory(pins);
    assert.ok(existsSync(path));
    unpin(path);
    map.close();
    unmountPinDirectory(pins);
    assert.deepEqual(readdirSync(pins), []);
    assert.throws(() => pin(fd, path), /EINVAL|EPERM/);
  });
});

test('network namespaces have cookies that differ', () => {
  const name = `flt-${randomBytes(3).toString('hex')}-a`;
  createNetns(name);
  try {
    assert.equal(netnsCookie(name), netnsCookie(name));
    assert.notEqual(netnsCookie(name), netnsCookie(null));
  } finally {
    removeNetns(name);
  }
});
