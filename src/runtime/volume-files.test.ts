import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
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
  truncateSync,
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
    test(`${name}: ${isReplaced ? 'replaced' : 'left alone'}`, async () => {
      await write(before);
      const first = current();
      await write(after);
      assert.equal(current() !== first, isReplaced);
      for (const [path, text] of Object.entries(after)) assert.equal(read(path), text);
      const tops = new Set(Object.keys(after).map((path) => path.replace('./', '').split('/')[0] ?? ''));
      assert.deepEqual(listed(), ['..data', current(), ...tops].sort());
    });

  test('have their mode; those of a group can be read by it', async () => {
    await writeVolumeFiles(folder, filesOf({ key: 'k' }, 0o400), undefined);
    assert.equal(statSync(join(folder, 'key')).mode & 0o777, 0o400);
    const other = join(folder, 'other');
    mkdirSync(other);
    await writeVolumeFiles(other, filesOf({ key: 'k' }, 0o400), process.getgid?.());
    assert.equal(statSync(join(other, 'key')).mode & 0o777, 0o440);
  });

  test('are replaced after an agent was killed while it replaced them', async () => {
    await write({ a: '1' });
    symlinkSync('..1', join(folder, '..data.new'));
    mkdirSync(join(folder, '..1'));
    await write({ a: '2' });
    assert.equal(read('a'), '2');
    assert.deepEqual(listed(), ['..data', current(), 'a'].sort());
  });

  test('other entries of the folder stay', async () => {
    symlinkSync('/nowhere', join(folder, 'mine'));
    await write({ a: '1' });
    await write({ b: '1' });
    assert.ok(lstatSync(join(folder, 'mine')).isSymbolicLink());
  });

  for (const path of ['../a', '/a', 'x/../../a'])
    test(`${path} is refused, and nothing is written`, async () => {
      await assert.rejects(
        () => write({ ok: '1', [path]: '2' }),
        (error: unknown) => error instanceof KubeletError && /outside the volume/.test(error.message),
      );
      assert.deepEqual(listed(), []);
    });

  test('2,000 of them are written, and compared, while the event loop serves others', async () => {
    const files = filesOf(
      Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`key-${i}`, `value ${i}`])),
    );
    for (const isReplaced of [true, false]) {
      const before = isReplaced ? '' : current();
      let turns = 0;
      let isDone = false;
      const turn = () => {
        turns++;
        if (!isDone) setImmediate(turn);
      };
      setImmediate(turn);
      await writeVolumeFiles(folder, files, undefined);
      isDone = true;
      assert.ok(turns > 100, `${turns} turns`);
      assert.equal(current() !== before, isReplaced);
    }
    assert.equal(listed().length, 2002);
    assert.equal(read('key-1999'), 'value 1999');
  });

  const planted: readonly (readonly [what: string, plant: (file: string) => void])[] = [
    ['a pipe', (file) => execFileSync('mkfifo', [file])],
    ['a link to a device', (file) => symlinkSync('/dev/zero', file)],
    ['a huge file', (file) => truncateSync(file, 2 ** 40)],
    ['a folder', (file) => mkdirSync(file)],
  ];
  for (const [what, plant] of planted)
    test(`${what} in place of a file is replaced, not read`, async () => {
      await write({ key: '1' });
      const file = join(folder, current(), 'key');
      if (what === 'a huge file') plant(file);
      else {
        rmSync(file);
        plant(file);
      }
      await write({ key: '1' });
      assert.equal(read('key'), '1');
    });
});
