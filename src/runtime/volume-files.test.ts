import assert from 'node:assert/strict';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { KubeletError } from './kubelet-error.ts';
import { type VolumeFile, writeVolumeFiles } from './volume-files.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-volume-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const filesOf = (contents: Record<string, string>, mode = 0o644): VolumeFile[] =>
  Object.entries(contents).map(([path, text]) => ({ path, content: Buffer.from(text), mode }));
const write = (contents: Record<string, string>) => writeVolumeFiles(folder, filesOf(contents), undefined);
const current = () => readlinkSync(join(folder, '..data'));
const listed = () => readdirSync(folder).sort();
const read = (path: string) => readFileSync(join(folder, path), 'utf8');

interface Change {
  readonly name: string;
  readonly before: Record<string, string>;
  readonly after: Record<string, string>;
  readonly isReplaced: boolean;
}

const CHANGES: Change[] = [
  { name: 'the same files', before: { a: '1', b: '2' }, after: { b: '2', a: '1' }, isReplaced: false },
  { name: 'the same files in folders', before: { 'x/a': '1' }, after: { './x/a': '1' }, isReplaced: false },
  { name: 'no files, again', before: {}, after: {}, isReplaced: false },
  { name: 'other contents', before: { a: '1', b: '2' }, after: { a: '1', b: '3' }, isReplaced: true },
  { name: 'one file more', before: { a: '1' }, after: { a: '1', 'x/y': '2' }, isReplaced: true },
  { name: 'one file less', before: { a: '1', 'x/y': '2' }, after: { a: '1' }, isReplaced: true },
  { name: 'another name', before: { a: '1' }, after: { b: '1' }, isReplaced: true },
];

describe('files of a volume', () => {
  for (const { name, before, after, isReplaced } of CHANGES)
    test(`${name}: ${isReplaced ? 'replaced' : 'left alone'}`, () => {
      write(before);
      const first = current();
      write(after);
      assert.equal(current() !== first, isReplaced);
      for (const [path, text] of Object.entries(after)) assert.equal(read(path), text);
      const tops = new Set(Object.keys(after).map((path) => path.replace('./', '').split('/')[0] ?? ''));
      assert.deepEqual(listed(), ['..data', current(), ...tops].sort());
    });

  test('have their mode; those of a group can be read by it', () => {
    writeVolumeFiles(folder, filesOf({ key: 'k' }, 0o400), undefined);
    assert.equal(statSync(join(folder, 'key')).mode & 0o777, 0o400);
    const other = join(folder, 'other');
    mkdirSync(other);
    writeVolumeFiles(other, filesOf({ key: 'k' }, 0o400), process.getgid?.());
    assert.equal(statSync(join(other, 'key')).mode & 0o777, 0o440);
  });

  test('are replaced after an agent was killed while it replaced them', () => {
    write({ a: '1' });
    symlinkSync('..1', join(folder, '..data.new'));
    mkdirSync(join(folder, '..1'));
    write({ a: '2' });
    assert.equal(read('a'), '2');
    assert.deepEqual(listed(), ['..data', current(), 'a'].sort());
  });

  test('other entries of the folder stay', () => {
    symlinkSync('/nowhere', join(folder, 'mine'));
    write({ a: '1' });
    write({ b: '1' });
    assert.ok(lstatSync(join(folder, 'mine')).isSymbolicLink());
  });

  for (const path of ['../a', '/a', 'x/../../a'])
    test(`${path} is refused, and nothing is written`, () => {
      assert.throws(
        () => write({ ok: '1', [path]: '2' }),
        (error: unknown) => error instanceof KubeletError && /outside the volume/.test(error.message),
      );
      assert.deepEqual(listed(), []);
    });
});
