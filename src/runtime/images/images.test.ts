import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { loadImageArchive } from './image-archive.ts';
import { pullImage } from './image-pull.ts';
import { createImageSource } from './image-source.ts';
import { type ImageStore, openImageStore } from './image-store.ts';
import { machineArchitecture } from './manifest.ts';
import { parseMirror } from './registry-endpoint.ts';
import {
  buildImage,
  buildIndex,
  dockerArchive,
  ociArchive,
  type TestImage,
  tarOf,
} from './testing/image-builder.ts';
import { startRegistry, type TestRegistry } from './testing/registry-server.ts';

let folder: string;
let store: ImageStore;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-images-'));
  store = openImageStore(join(folder, 'store'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const now = new Date(0);
const PLATFORM = `linux/${machineArchitecture()}`;

async function load(archive: Buffer, name?: string) {
  const file = join(folder, 'archive');
  writeFileSync(file, archive);
  return await loadImageArchive(store, file, { now, ...(name ? { name } : {}) });
}

/** Files of an image's root: "path" → contents, "link → target", or "/". */
function tree(name: string): Record<string, string> {
  const image = store.find(name);
  assert.ok(image, `${name} is not here`);
  const [root = ''] = store.open(image).layers;
  const files = readdirSync(root, { recursive: true, withFileTypes: true });
  return Object.fromEntries(
    files.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      const what = entry.isSymbolicLink()
        ? `→ ${readlinkSync(path)}`
        : entry.isFile()
          ? readFileSync(path, 'utf8')
          : '/';
      return [path.slice(root.length + 1), what];
    }),
  );
}

const archiveOf = (image: TestImage, name?: string) =>
  ociArchive([{ descriptor: image.manifest, ...(name ? { name } : {}) }], image.blobs);
const simple = () => buildImage([[{ path: 'hello', contents: 'there' }]]);

describe('layers', () => {
  test('later layers add, replace and remove; opaque folders hide lower contents', async () => {
    const image = buildImage(
      [
        [
          { path: 'a', type: 'directory' },
          { path: 'a/gone', contents: '1' },
          { path: 'a/kept', contents: '2' },
          { path: 'dir', type: 'directory' },
          { path: 'dir/old', contents: '3' },
          { path: 'file', contents: '4' },
          { path: 'turns', type: 'directory' },
          { path: 'turns/inside', contents: '5' },
        ],
        [
          { path: 'a/.wh.gone' },
          { path: 'dir/new', contents: '6' },
          { path: 'dir/.wh..wh..opq' },
          { path: 'file', contents: '7' },
          { path: 'turns', contents: 'a file now' },
          { path: '.wh..wh.plnk', contents: 'of the builder’s own' },
          { path: 'link', type: 'symlink', linkPath: '/file' },
          { path: 'hard', type: 'link', linkPath: 'a/kept' },
        ],
      ],
      {},
      ['gzip', 'zstd'],
    );
    await load(archiveOf(image, 'layers:1'));
    assert.deepEqual(tree('layers:1'), {
      a: '/',
      'a/kept': '2',
      dir: '/',
      'dir/new': '6',
      file: '7',
      hard: '2',
      link: '→ /file',
      turns: 'a file now',
    });
  });
  test('files have the owners, modes and times of the layer', async () => {
    const image = buildImage([
      [{ path: 'tool', contents: 'x', mode: 0o4751, uid: 12, gid: 34 }],
      [{ path: 'pipe', type: 'fifo', mode: 0o600 }],
    ]);
    await load(archiveOf(image, 'modes:1'));
    const stored = store.find('modes:1');
    assert.ok(stored);
    const root = store.open(stored).layers[0] ?? '';
    const { mode, uid, gid, mtimeMs } = statSync(join(root, 'tool'));
    assert.deepEqual([mode & 0o7777, mtimeMs], [0o4751, 1_700_000_000_000]);
    if (process.getuid?.() === 0) assert.deepEqual([uid, gid], [12, 34]);
    assert.ok(lstatSync(join(root, 'pipe')).isFIFO());
  });
  test('a layer written by GNU tar, with long names in both formats', async () => {
    const long = `${'d'.repeat(90)}/${'e'.repeat(90)}/${'f'.repeat(90)}`;
    const source = join(folder, 'source');
    mkdirSync(join(source, long), { recursive: true });
    writeFileSync(join(source, long, 'äöü'), 'long');
    symlinkSync(long, join(source, 'link'));
    for (const format of ['gnu', 'pax']) {
      const tar = execFileSync('tar', ['-C', source, `--format=${format}`, '-c', '.']);
      const image = buildImage([[]]);
      // The same image with the layer that tar wrote in place of the empty one.
      const text = String(image.blobs.get(image.config.digest));
      const sum = (data: Buffer) => `sha256:${createHash('sha256').update(data).digest('hex')}`;
      const config = Buffer.from(text.replace(sum(tarOf([])), sum(tar)));
      const describe = (data: Buffer) => ({ mediaType: 'x', digest: sum(data), size: data.length });
      const manifest = Buffer.from(JSON.stringify({ config: describe(config), layers: [describe(tar)] }));
      const blobs = new Map([config, tar, manifest].map((data) => [sum(data), data]));
      await load(ociArchive([{ descriptor: describe(manifest), name: `${format}:1` }], blobs));
      assert.equal(tree(`${format}:1`)[`${long}/äöü`], 'long');
      assert.equal(tree(`${format}:1`)['link'], `→ ${long}`);
    }
  });
  for (const [what, entries] of [
    ['a path with ".."', [{ path: '../outside', contents: 'x' }]],
    [
      'an absolute link, followed inside',
      [
        { path: 'out', type: 'symlink', linkPath: '/escape' },
        { path: 'out/outside', contents: 'x' },
      ],
    ],
    [
      'a link up, followed inside',
      [
        { path: 'out', type: 'symlink', linkPath: '../../../../../../tmp' },
        { path: 'out/flt-outside', contents: 'x' },
      ],
    ],
    [
      'a loop of links',
      [
        { path: 'a', type: 'symlink', linkPath: 'b' },
        { path: 'b', type: 'symlink', linkPath: 'a' },
        { path: 'a/outside', contents: 'x' },
      ],
    ],
  ] as const) {
    test(`nothing outside the image is written: ${what}`, async () => {
      await load(archiveOf(buildImage([entries]), 'evil:1')).catch(() => {});
      assert.ok(
        !existsSync(join(folder, 'outside')) && !existsSync('/escape') && !existsSync('/tmp/flt-outside'),
      );
    });
  }
  test('a hard link cannot expose a file of the machine', async () => {
    const image = buildImage([[{ path: 'mine', type: 'link', linkPath: '/etc/hostname' }]]);
    await assert.rejects(load(archiveOf(image, 'evil:1')));
    assert.equal(store.find('evil:1'), null);
  });
});

describe('archives', () => {
  test('an OCI layout with several images and names', async () => {
    const [one, two] = [simple(), buildImage([[{ path: 'two', contents: '2' }]])];
    const blobs = new Map([...one.blobs, ...two.blobs]);
    const loaded = await load(
      ociArchive(
        [
          { descriptor: one.manifest, name: 'one:1' },
          { descriptor: one.manifest, name: 'one:again' },
          { descriptor: two.manifest, name: 'example.com/two:2' },
        ],
        blobs,
      ),
    );
    const names = ['docker.io/library/one:1', 'docker.io/library/one:again', 'example.com/two:2'];
    assert.deepEqual(
      loaded.map(({ name }) => name),
      names,
    );
    assert.deepEqual(
      store.list().map(({ name }) => name),
      names,
    );
    assert.deepEqual(tree('one:again'), { hello: 'there' });
  });
  test('a list of images yields the one for this machine', async () => {
    const other = buildImage([[{ path: 'wrong', contents: '' }]]);
    const { index, blobs } = buildIndex([
      { platform: 'linux/s390x', image: other },
      { platform: 'windows/amd64', image: other },
      { platform: PLATFORM, image: simple() },
    ]);
    await load(ociArchive([{ descriptor: index, name: 'multi:1' }], blobs));
    assert.deepEqual(tree('multi:1'), { hello: 'there' });
  });
  test('a list without an image for this machine names its platforms', async () => {
    const { index, blobs } = buildIndex([{ platform: 'linux/s390x', image: simple() }]);
    await assert.rejects(load(ociArchive([{ descriptor: index, name: 'x:1' }], blobs)), {
      message: new RegExp(`for linux/s390x, not for ${PLATFORM}`),
    });
  });
  test('the output of docker save, compressed with gzip', async () => {
    const image = buildImage([[{ path: 'd', contents: '1' }], [{ path: 'e', contents: '2' }]], {}, ['none']);
    await load(Buffer.from(gzipSync(dockerArchive(image, ['me/app:7', 'me/app:latest']))));
    assert.deepEqual(tree('me/app:7'), { d: '1', e: '2' });
    assert.equal(store.list().length, 2);
  });
  test('an image without a name must be given one', async () => {
    await assert.rejects(load(archiveOf(simple())), { hint: /--as NAME:TAG/ });
    await load(archiveOf(simple()), 'given:3');
    assert.deepEqual(tree('given:3'), { hello: 'there' });
  });
  test('a blob with other contents than its digest is refused', async () => {
    const image = simple();
    const layer = image.layers[0]?.digest ?? '';
    const blobs = new Map(image.blobs).set(layer, Buffer.from('something else'));
    await assert.rejects(load(ociArchive([{ descriptor: image.manifest, name: 'x:1' }], blobs)), {
      code: 'bad-image',
      message: /has the contents of/,
    });
    assert.deepEqual(store.list(), []);
  });
  test('a layer whose contents differ from the configuration is refused', async () => {
    const [image, other] = [simple(), buildImage([[{ path: 'other', contents: '' }]])];
    const manifest = Buffer.from(JSON.stringify({ config: image.config, layers: other.layers }));
    const digest = `sha256:${createHash('sha256').update(manifest).digest('hex')}`;
    const blobs = new Map([...image.blobs, ...other.blobs, [digest, manifest] as const]);
    const descriptor = { mediaType: 'x', digest, size: manifest.length };
    await assert.rejects(load(ociArchive([{ descriptor, name: 'x:1' }], blobs)), {
      message: /its configuration names/,
    });
  });
  for (const [what, archive, message] of [
    ['a file that is not an archive', Buffer.from('x'.repeat(2000)), /not a readable tar archive/],
    ['a truncated archive', archiveOf(simple(), 'x:1').subarray(0, 1500), /Unexpected end of data|lacks/],
    ['an archive of something else', tarOf([{ path: 'README' }]), /neither index.json/],
    ['a missing blob', ociArchive([{ descriptor: simple().manifest, name: 'x:1' }], new Map()), /lacks/],
    ['a path outside the archive', tarOf([{ path: '../../x' }]), /is outside the/],
  ] as const) {
    test(`refused: ${what}`, async () => {
      await assert.rejects(load(archive), { message });
      assert.deepEqual(readdirSync(join(folder, 'store', 'work')), []);
    });
  }
  test('a missing file', () =>
    assert.rejects(loadImageArchive(store, join(folder, 'no'), { now }), { code: 'ENOENT' }));
});

describe('the store', () => {
  test('containers get the settings of the configuration', async () => {
    const config = {
      Entrypoint: ['/bin/app'],
      Cmd: ['serve'],
      Env: ['A=1=2', 'PATH=/app'],
      WorkingDir: '/srv',
      User: 'web:web',
      StopSignal: 'SIGQUIT',
    };
    const [image] = await load(archiveOf(buildImage([[{ path: 'x' }]], config), 'app:1'));
    assert.ok(image);
    const { layers, ...rest } = store.open(image);
    assert.equal(layers.length, 1);
    assert.deepEqual(rest, {
      name: 'docker.io/library/app:1',
      id: `docker.io/library/app@${image.digest}`,
      env: { PATH: '/app', A: '1=2' },
      entrypoint: ['/bin/app'],
      command: ['serve'],
      workingDir: '/srv',
      user: 'web:web',
      stopSignal: 'SIGQUIT',
      mounts: [],
    });
  });
  test('removing a name keeps content that another name needs, and the last one removes everything', async () => {
    const image = simple();
    await load(archiveOf(image, 'one:1'));
    await load(archiveOf(image, 'two:1'));
    assert.ok(store.remove('one:1'));
    assert.deepEqual(tree('two:1'), { hello: 'there' });
    assert.ok(store.remove('docker.io/library/two:1'));
    for (const part of ['blobs/sha256', 'roots', 'names']) {
      assert.deepEqual(readdirSync(join(folder, 'store', part)), []);
    }
    assert.equal(store.remove('two:1'), null);
  });
  test('partial work of a dead process is removed', async () => {
    writeFileSync(join(folder, 'store', 'work', '1.1.root.x'), '');
    openImageStore(join(folder, 'store'));
    await eventually(() => readdirSync(join(folder, 'store', 'work')).length === 0);
  });
});

describe('registries', () => {
  let registry: TestRegistry;
  before(async () => {
    registry = await startRegistry();
  });
  after(() => registry.close());
  beforeEach(() => {
    for (const one of [registry.tags, registry.blobs, registry.breaks]) one.clear();
    registry.requests.length = 0;
    registry.access = null;
    registry.failure = null;
  });
  const publish = (image: TestImage, name = 'team/app:1') => {
    for (const [digest, data] of image.blobs) registry.blobs.set(digest, data);
    registry.tags.set(name, image.manifest.digest);
    return `${registry.host}/${name}`;
  };
  const pull = (name: string, credentials = { username: 'me', password: 'secret' }) =>
    pullImage(store, name, { now, credentials });

  test('by tag and by digest; present content is not fetched again', async () => {
    const image = simple();
    const name = publish(image);
    await pull(name);
    assert.deepEqual(tree(name), { hello: 'there' });
    assert.equal(registry.requests.length, 3);
    await pull(name);
    assert.equal(registry.requests.length, 4);
    const byDigest = `${registry.host}/team/app@${image.manifest.digest}`;
    await pull(byDigest);
    assert.equal(registry.requests.length, 5);
    assert.deepEqual(tree(byDigest), { hello: 'there' });
  });
  test('a list of images yields the one for this machine', async () => {
    const image = simple();
    const { index, blobs } = buildIndex([
      { platform: 'linux/s390x', image: buildImage([[{ path: 'wrong' }]]) },
      { platform: PLATFORM, image },
    ]);
    for (const [digest, data] of blobs) registry.blobs.set(digest, data);
    registry.tags.set('multi:1', index.digest);
    const stored = await pull(`${registry.host}/multi:1`);
    assert.deepEqual([stored.digest, stored.listDigest], [image.manifest.digest, index.digest]);
    assert.deepEqual(tree(`${registry.host}/multi:1`), { hello: 'there' });
  });
  test('a moved tag yields the new image', async () => {
    const name = publish(simple());
    await pull(name);
    publish(buildImage([[{ path: 'hello', contents: 'again' }]]));
    await pull(name);
    assert.deepEqual(tree(name), { hello: 'again' });
  });
  for (const token of [false, true]) {
    test(`a registry that asks for ${token ? 'a token' : 'a password'}`, async () => {
      registry.access = { user: 'me', password: 'secret', token };
      const name = publish(simple());
      await assert.rejects(pullImage(store, name, { now }), {
        code: 'ErrImagePull',
        message: /imagePullSecrets/,
      });
      await pull(name);
      assert.deepEqual(tree(name), { hello: 'there' });
      store.remove(name);
      await assert.rejects(pull(name, { username: 'me', password: 'wrong' }), { code: 'ErrImagePull' });
    });
  }
  test('an interrupted transfer is resumed', async () => {
    const image = buildImage([[{ path: 'big', contents: 'x'.repeat(200_000) }]], {}, ['none']);
    const layer = image.layers[0]?.digest ?? '';
    registry.breaks.set(layer, [70_000, 50_000]);
    const name = publish(image);
    await pull(name);
    assert.equal(registry.requests.filter((url) => url.endsWith(layer)).length, 3);
    assert.equal(tree(name)['big']?.length, 200_000);
  });
  test('content that does not match its digest is refused', async () => {
    const image = simple();
    const name = publish(image);
    const layer = image.layers[0];
    assert.ok(layer);
    registry.blobs.set(layer.digest, Buffer.alloc(layer.size));
    await assert.rejects(pull(name), { code: 'bad-image', message: /the registry sent sha256/ });
    assert.deepEqual(store.list(), []);
  });
  for (const [what, prepare, message] of [
    ['a missing image', () => {}, /not found in .*MANIFEST_UNKNOWN/],
    [
      'a failing registry',
      () => {
        registry.failure = 503;
      },
      /answered 503 \(UNAVAILABLE/,
    ],
    [
      'too many pulls',
      () => {
        registry.failure = 429;
      },
      /limits the rate of pulls/,
    ],
  ] as const) {
    test(`${what} is reported with a description`, async () => {
      prepare();
      await assert.rejects(pull(`${registry.host}/none:1`), { code: 'ErrImagePull', message });
    });
  }
  test('an unreachable registry', () =>
    assert.rejects(pull('127.0.0.1:1/none:1'), {
      code: 'ErrImagePull',
      message: /cannot reach 127.0.0.1:1/,
    }));
  describe('mirrors', () => {
    const mirrored = (...urls: string[]) =>
      pullImage(store, '127.0.0.1:1/team/app:1', {
        now,
        credentials: { username: 'me', password: 'secret' },
        mirrors: urls.map((url) => parseMirror(`127.0.0.1:1=${url}`)),
      });
    test('are asked first, in order, with the name of the registry and without its credentials', async () => {
      publish(simple());
      const stored = await mirrored('http://127.0.0.1:1', `http://${registry.host}`);
      assert.equal(stored.name, '127.0.0.1:1/team/app:1');
      assert.equal(registry.requests[0], '/v2/team/app/manifests/1?ns=127.0.0.1%3A1');
      store.remove(stored.name);
      registry.access = { user: 'me', password: 'secret', token: false };
      await assert.rejects(mirrored(`http://${registry.host}`), /requires a user name and password/);
    });
    test('may have a path, as a project that is a cache', async () => {
      publish(simple(), 'cache/team/app:1');
      await mirrored(`http://${registry.host}/cache/`);
      assert.match(registry.requests[0] ?? '', /^\/v2\/cache\/team\/app\/manifests\/1/);
    });
    test('that fail are named with the failure of the registry', async () => {
      registry.failure = 503;
      await assert.rejects(mirrored(`http://${registry.host}`), {
        code: 'ErrImagePull',
        message: /cannot reach 127\.0\.0\.1:1: .*; mirror 127\.0\.0\.1:\d+: .* answered 503/,
      });
    });
    for (const text of [
      'docker.io',
      '=http://a',
      'docker.io=a',
      'a b=http://c',
      'a=ftp://b',
      'a=http://u:p@b',
      'a=http://b?c',
    ])
      test(`${text} is refused`, () => assert.throws(() => parseMirror(text), { code: 'usage' }));
  });
  const imageSource = () =>
    createImageSource({
      store,
      builtins: {},
      hostRoot: () => ({ layers: [], trees: [] }),
      plainHttp: [],
      clock: systemClock,
      signal: new AbortController().signal,
    });
  test('a pull that fails names the commands that load images', async () => {
    const source = imageSource();
    await assert.rejects(
      source.pull({ image: '127.0.0.1:1/none:1' }, async () => null),
      /fairlead image load FILE.*fairlead image pull IMAGE/,
    );
    source.close();
  });
  test('concurrent pulls of one image fetch it once', async () => {
    const source = imageSource();
    const name = publish(simple());
    const container = { name: 'c', image: name };
    const images = await Promise.all(
      Array.from({ length: 8 }, () => source.pull(container, async () => null)),
    );
    assert.equal(new Set(images.map(({ id }) => id)).size, 1);
    assert.equal(registry.requests.length, 3);
    source.close();
  });
});
