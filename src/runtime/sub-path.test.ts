import assert from 'node:assert/strict';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { volumeMounts } from './volumes.ts';

let folder: string;
let volume: string;
let held: number[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-sub-path-'));
  volume = join(folder, 'volume');
  mkdirSync(join(volume, 'own'), { recursive: true });
  writeFileSync(join(volume, 'own', 'file'), 'of the pod');
  mkdirSync(join(folder, 'machine'));
  writeFileSync(join(folder, 'machine', 'file'), 'of the machine');
  held = [];
});
afterEach(() => {
  for (const fd of held) closeSync(fd);
  rmSync(folder, { recursive: true });
});

/** Returns the source of a mount with a subPath. */
function sourceOf(subPath: string): string {
  const pod = { spec: { volumes: [{ name: 'data', emptyDir: {} }], containers: [] } };
  const container = { name: 'main', volumeMounts: [{ name: 'data', mountPath: '/data', subPath }] };
  const pin = (fd: number) => {
    held.push(fd);
    return `/proc/self/fd/${fd}`;
  };
  const [mount] = volumeMounts(pod, container, new Map([['data', volume]]), new Map(), pin);
  return mount?.source ?? '';
}

describe('the subPath of a mount', () => {
  test('stays in the volume when a container replaces it with a link after the check', () => {
    const source = sourceOf('own');
    renameSync(join(volume, 'own'), join(volume, 'moved'));
    symlinkSync(join(folder, 'machine'), join(volume, 'own'));
    assert.equal(readFileSync(join(source, 'file'), 'utf8'), 'of the pod');
  });

  test('follows links inside the volume', () => {
    symlinkSync('own', join(volume, 'link'));
    assert.equal(readFileSync(sourceOf('link/file'), 'utf8'), 'of the pod');
  });

  const outside = [
    ['a relative link', '../machine'],
    ['an absolute link', '/etc'],
  ] as const;
  for (const [name, target] of outside) {
    test(`${name} out of the volume is refused`, () => {
      symlinkSync(target, join(volume, 'link'));
      assert.throws(() => sourceOf('link'), /is a link to a path outside the volume/);
      assert.throws(() => sourceOf('link/made'), /is a link to a path outside the volume/);
      assert.deepEqual(readdirSync(join(folder, 'machine')), ['file']);
    });
  }

  test('a link to a missing file is refused', () => {
    symlinkSync('nothing', join(volume, 'link'));
    assert.throws(() => sourceOf('link/made'), /is a link to a missing file/);
    assert.equal(existsSync(join(volume, 'nothing')), false);
  });

  test('missing folders are created with the mode of the volume', () => {
    const source = sourceOf('made/here');
    writeFileSync(join(source, 'file'), 'new');
    assert.equal(readFileSync(join(volume, 'made', 'here', 'file'), 'utf8'), 'new');
  });

  test('the volume itself', () => {
    assert.deepEqual(readdirSync(sourceOf('.')), ['own']);
  });
});
