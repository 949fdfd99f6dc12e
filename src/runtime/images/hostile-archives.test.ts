import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { loadImageArchive } from './image-archive.ts';
import { openImageStore } from './image-store.ts';
import { applyLayer } from './layer.ts';
import type { LayerLimits } from './layer-limits.ts';
import { readTar } from './tar-reader.ts';
import { buildImage, type LayerEntry, ociArchive, tarOf } from './testing/image-builder.ts';

/** What lies beside the image's root and must stay: a file, and a folder with one. */
const folder = mkdtempSync(join(tmpdir(), 'flt-hostile-'));
const root = join(folder, 'roots', 'image');
after(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  rmSync(join(folder, 'roots'), { recursive: true, force: true });
  mkdirSync(join(folder, 'roots', 'other'), { recursive: true });
  writeFileSync(join(folder, 'roots', 'other', 'kept'), 'kept');
  writeFileSync(join(folder, 'roots', 'secret'), 'secret', { mode: 0o600 });
  mkdirSync(root);
});

async function* inChunks(data: Uint8Array, size = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

function assertNothingOutsideChanged(): void {
  assert.deepEqual(readdirSync(join(folder, 'roots')).sort(), ['image', 'other', 'secret']);
  assert.equal(readFileSync(join(folder, 'roots', 'other', 'kept'), 'utf8'), 'kept');
  assert.equal(readFileSync(join(folder, 'roots', 'secret'), 'utf8'), 'secret');
}

/** Replaces a header's bytes at `at`, with a checksum that fits. */
function withField(archive: Buffer, at: number, bytes: Uint8Array): Buffer {
  const copy = Buffer.from(archive);
  copy.set(bytes, at);
  copy.fill(' ', 148, 156);
  const sum = copy.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  copy.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return copy;
}

const SIZE = 124;
const base256 = (...bytes: number[]) => Uint8Array.of(0x80, ...Array(11 - bytes.length).fill(0), ...bytes);

describe('a hostile layer is refused and changes nothing outside the image', () => {
  const file = (path: string, more: Partial<LayerEntry> = {}): LayerEntry => ({
    path,
    contents: 'x',
    ...more,
  });
  const rows: readonly (readonly [what: string, archive: Buffer, message: RegExp])[] = [
    ['a path up', tarOf([file('../escaped')]), /is outside the/],
    ['a path up in the middle', tarOf([file('a/../../escaped')]), /is outside the/],
    ['a path up in a pax header', tarOf([file('a', { pax: { path: '../escaped' } })]), /is outside the/],
    ['a whiteout of the parent folder', tarOf([file('.wh...')]), /whiteout/],
    ['a whiteout of the parent folder, deeper', tarOf([file('a/b'), file('a/.wh...')]), /whiteout/],
    ['a whiteout of its own folder', tarOf([file('.wh..')]), /whiteout/],
    ['a whiteout without a name', tarOf([file('.wh.')]), /whiteout/],
    [
      'a hard link to the outside',
      tarOf([{ path: 'x', type: 'link', linkPath: '../secret' }]),
      /is outside the/,
    ],
    ['a hard link to nothing', tarOf([{ path: 'x', type: 'link', linkPath: '' }]), /names no file/],
    [
      'a hard link through a symbolic link to the outside',
      tarOf([
        { path: 'up', type: 'symlink', linkPath: '../..' },
        { path: 'x', type: 'link', linkPath: 'up/roots/secret' },
      ]),
      /ENOENT/,
    ],
    [
      'a size that is not a number',
      withField(tarOf([file('a')]), SIZE, Buffer.from('zzzzzzzzzzz\0')),
      /header|size/i,
    ],
    ['a negative size', withField(tarOf([file('a')]), SIZE, new Uint8Array(12).fill(0xff)), /header|size/i],
    [
      'a size beyond 2^53',
      withField(tarOf([file('a')]), SIZE, base256(0x7f, 0, 0, 0, 0, 0, 0)),
      /size|end of data/,
    ],
    ['a size beyond the archive', withField(tarOf([file('a')]), SIZE, base256(1, 0, 0, 0, 0)), /end of data/],
    ['a size in a pax header that is not a number', tarOf([file('a', { pax: { size: 'many' } })]), /header/i],
    [
      'a pax header larger than memory',
      withField(tarOf([file('a', { pax: { a: 'b' } })]), SIZE, base256(1, 0, 0, 0, 0)),
      /max size/,
    ],
    [
      'a GNU long name larger than memory',
      withField(withField(tarOf([file('a')]), SIZE, base256(0x40, 0, 0, 0)), 156, Buffer.from('L')),
      /max size/,
    ],
    [
      'a GNU long link larger than memory',
      withField(withField(tarOf([file('a')]), SIZE, base256(0x40, 0, 0, 0)), 156, Buffer.from('K')),
      /max size/,
    ],
    [
      'a path longer than the kernel’s',
      tarOf([file('a', { pax: { path: 'a/'.repeat(100) + 'b'.repeat(4000) } })]),
      /a path of more than 4095 bytes/,
    ],
    [
      'a link’s target longer than the kernel’s',
      tarOf([{ path: 'x', type: 'symlink', linkPath: 'y', pax: { linkpath: 'z'.repeat(5000) } }]),
      /a path of more than 4095 bytes/,
    ],
    [
      'a name longer than a file system’s',
      tarOf([file('a', { pax: { path: 'n'.repeat(300) } })]),
      /ENAMETOOLONG/,
    ],
    [
      'folders nested without end',
      tarOf([file('a', { pax: { path: `${'d/'.repeat(300)}x` } })]),
      /folders nested more than 256 deep/,
    ],
    ['a sparse file of GNU tar', withField(tarOf([file('a')]), 156, Buffer.from('S')), /not supported/],
    ['a sparse file in pax', tarOf([file('a', { pax: { 'GNU.sparse.major': '1' } })]), /not supported/],
    ['an unknown type', withField(tarOf([file('a')]), 156, Buffer.from('Z')), /not supported/],
    [
      'a user number out of the kernel’s range',
      tarOf([file('a', { pax: { uid: '4294967295' } })]),
      /invalid user/,
    ],
    ['a group that is not a number', tarOf([file('a', { pax: { gid: 'x' } })]), /invalid group/],
    [
      'a device number out of the kernel’s range',
      withField(tarOf([{ path: 'd', type: 'character' }]), 329, Buffer.from('7777777\0')),
      /device number/,
    ],
    ['a wrong checksum', Buffer.concat([tarOf([file('a')]).fill('9', 148, 154)]), /header/],
    ['a truncated archive', tarOf([file('a')]).subarray(0, 600), /end of data/],
  ];
  for (const [what, archive, message] of rows) {
    test(what, async () => {
      await assert.rejects(applyLayer(root, inChunks(archive)), { message });
      assertNothingOutsideChanged();
    });
  }
});

describe('an image beyond a limit is refused and leaves nothing', () => {
  const text = (length: number): LayerEntry => ({ path: 'zeros', contents: Buffer.alloc(length) });
  const many = (count: number): LayerEntry[] =>
    Array.from({ length: count }, (_, i) => ({ path: `f${i}`, contents: '' }));
  const headers = (count: number): LayerEntry[] =>
    Array.from({ length: count }, () => ({ path: 'same', contents: '', pax: { comment: 'x'.repeat(900) } }));
  const rows: readonly (readonly [
    what: string,
    layers: readonly (readonly LayerEntry[])[],
    limits: Partial<LayerLimits>,
    message: RegExp,
  ])[] = [
    ['a decompression bomb', [[text(64 << 20)]], { bytes: 1 << 20 }, /more than 1048576 bytes/],
    [
      'layers that are too large together',
      [[text(600_000)], [text(600_000)]],
      { bytes: 1 << 20 },
      /more than 1048576 bytes/,
    ],
    ['too many files', [many(200)], { entries: 100 }, /more than 100 entries/],
    ['too many files in all layers', [many(60), many(60)], { entries: 100 }, /more than 100 entries/],
    [
      'folders that only paths name',
      [Array.from({ length: 60 }, (_, i) => ({ path: `u${i}/a/b`, contents: '' }))],
      { entries: 100 },
      /more than 100 entries/,
    ],
    [
      'folders nested by the target of a link',
      [
        [
          { path: 'l', type: 'symlink', linkPath: 'x', pax: { linkpath: 'd/'.repeat(1500) } },
          { path: 'l/a', contents: '' },
        ],
      ],
      {},
      /folders nested more than 256 deep/,
    ],
    ['headers that count as no file', [headers(2000)], { bytes: 1 << 20 }, /more than 1048576 bytes/],
    ['an archive that takes too long', [many(20_000)], { seconds: 0 }, /not finished within 0 s/],
  ];
  for (const [what, layers, limits, message] of rows) {
    test(what, async () => {
      const store = openImageStore(join(folder, 'store'), limits);
      const image = buildImage(layers, {});
      const file = join(folder, 'archive');
      writeFileSync(file, ociArchive([{ descriptor: image.manifest, name: 'hostile:1' }], image.blobs));
      await assert.rejects(loadImageArchive(store, file, { now: new Date(0) }), { message });
      assert.equal(store.find('hostile:1'), null);
      assert.deepEqual(readdirSync(join(folder, 'store', 'roots')), []);
      assert.deepEqual(readdirSync(join(folder, 'store', 'work')), []);
    });
  }
});

test('an image with 600 devices is unpacked while the event loop serves others', async () => {
  const devices: LayerEntry[] = Array.from({ length: 600 }, (_, i) => ({ path: `d${i}`, type: 'character' }));
  const image = buildImage([[...devices, { path: 'pipe', type: 'fifo' }]]);
  const store = openImageStore(join(folder, 'devices'));
  const file = join(folder, 'archive');
  writeFileSync(file, ociArchive([{ descriptor: image.manifest, name: 'devices:1' }], image.blobs));
  const [stored] = await loadImageArchive(store, file, { now: new Date(0) });
  assert.ok(stored);
  const [top = ''] = store.open(stored).layers;
  const device = statSync(join(top, 'd599'));
  assert.ok(device.isCharacterDevice());
  // The builder's major 1 and minor 3: /dev/null.
  assert.equal(device.rdev, statSync('/dev/null').rdev);
  assert.ok(statSync(join(top, 'pipe')).isFIFO());
  assert.equal(readdirSync(top).length, 601);
});

describe('a hostile configuration is refused', () => {
  const rows: readonly (readonly [what: string, config: object, message: RegExp])[] = [
    ['variables that are not texts', { Env: [1] }, /a list that is not of texts/],
    ['a command that is not a list', { Cmd: 'sh' }, /a list that is not of texts/],
    ['a command with a NUL byte', { Cmd: ['a\0b'] }, /a list that is not of texts/],
    ['a user that is not a text', { User: { uid: 0 } }, /a field that is not a text/],
    ['more than a MiB', { Env: [`A=${'x'.repeat(1 << 20)}`] }, /more than 1048576 bytes/],
  ];
  for (const [what, config, message] of rows) {
    test(what, async () => {
      const store = openImageStore(join(folder, 'store'));
      const image = buildImage([[]], config);
      const file = join(folder, 'archive');
      writeFileSync(file, ociArchive([{ descriptor: image.manifest, name: 'hostile:1' }], image.blobs));
      await assert.rejects(loadImageArchive(store, file, { now: new Date(0) }), { message });
    });
  }
  test('an archive’s list that names itself', async () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    const list = JSON.stringify({ manifests: [{ mediaType: '', digest, size: 1 }] });
    const file = join(folder, 'archive');
    writeFileSync(
      file,
      tarOf([
        { path: 'index.json', contents: list },
        { path: `blobs/sha256/${'a'.repeat(64)}`, contents: list },
      ]),
    );
    const store = openImageStore(join(folder, 'store'));
    await assert.rejects(loadImageArchive(store, file, { now: new Date(0) }), /nested lists/);
  });
});

describe('a layer with links to the outside stays inside', () => {
  const rows: readonly (readonly [what: string, entries: readonly LayerEntry[]])[] = [
    ['an absolute path', [{ path: '/escaped', contents: 'x' }]],
    [
      'a file behind a link to an absolute folder',
      [
        { path: 'out', type: 'symlink', linkPath: join(folder, 'roots') },
        { path: 'out/secret', contents: 'x' },
      ],
    ],
    [
      'a file in place of a link',
      [
        { path: 'secret', type: 'symlink', linkPath: '../secret' },
        { path: 'secret', contents: 'x' },
      ],
    ],
    [
      'a whiteout behind a link',
      [
        { path: 'out', type: 'symlink', linkPath: join(folder, 'roots') },
        { path: 'out/.wh.secret', contents: '' },
      ],
    ],
    [
      'an opaque folder behind a link',
      [
        { path: 'out', type: 'symlink', linkPath: '../../..' },
        { path: 'out/.wh..wh..opq', contents: '' },
      ],
    ],
  ];
  for (const [what, entries] of rows) {
    test(what, async () => {
      await applyLayer(root, inChunks(tarOf(entries)));
      assertNothingOutsideChanged();
    });
  }
});

test('corrupt archives are read or refused in bounded time', async () => {
  const sound = tarOf([
    { path: 'folder', type: 'directory' },
    { path: 'folder/file', contents: 'x'.repeat(2000), pax: { mtime: '1.5', path: 'folder/longer' } },
    { path: 'link', type: 'symlink', linkPath: 'folder' },
    { path: 'pipe', type: 'fifo' },
  ]);
  // A linear congruential generator (Numerical Recipes): the same damage at every run.
  let seed = 12;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed % below;
  };
  for (let round = 0; round < 2000; round++) {
    let damaged: Buffer = Buffer.from(sound);
    // Headers only: in contents, any byte is right.
    const header = 512 * random(Math.floor(sound.length / 512));
    damaged = withBytes(damaged, header + random(512), random(256));
    const start = Math.min(header, damaged.length - 512);
    if (random(4) > 0) damaged = withChecksum(damaged, start);
    if (random(8) === 0) damaged = damaged.subarray(0, random(damaged.length));
    try {
      for await (const entry of readTar(inChunks(damaged, 1 + random(4000)))) {
        for await (const chunk of entry.body) assert.ok(chunk.length > 0);
      }
    } catch (error) {
      assert.ok(error instanceof FairleadError && hasCode(error, 'bad-archive'), String(error));
    }
  }
});

function withBytes(data: Buffer, at: number, byte: number): Buffer {
  data[at] = byte;
  return data;
}

function withChecksum(data: Buffer, start: number): Buffer {
  const fixed = withField(data.subarray(start, start + 512), 0, data.subarray(start, start + 1));
  data.set(fixed, start);
  return data;
}
