import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';
import { DEFAULT_FILES } from './default-suite.ts';
import { FULL_FILES } from './full-suite.ts';
import { PARTS, partOf } from './parts.ts';
import { allFiles, type Command, defaultFiles, leftOutLines, parseCommand } from './plan.ts';

const root = resolve(import.meta.dirname, '../..');
const FILES = [
  'src/a.test.ts',
  'src/a.ts',
  'src/b.netns.test.ts',
  'src/c.built.test.ts',
  'src/c.vm.test.ts',
  'tests/d.netns.test.ts',
  'tests/e.matrix.test.ts',
  'tests/f.matrix.vm.test.ts',
  'tests/g.real.test.ts',
  'tests/chaos/h.chaos.ts',
  'tests/ipvs-cluster.vm.test.ts',
  'tests/promise/nftables.netns.test.ts',
];

const parts: readonly (readonly [file: string, part: string | null])[] = [
  ['src/a.test.ts', 'unit'],
  ['src/a.ts', null],
  ['src/b.netns.test.ts', 'rooms'],
  ['src/c.built.test.ts', 'built'],
  ['src/c.vm.test.ts', 'vm'],
  ['tests/d.netns.test.ts', 'clusters'],
  ['tests/e2e/quick.netns.test.ts', 'clusters'],
  ['tests/e.matrix.test.ts', 'matrix'],
  ['tests/f.matrix.vm.test.ts', 'vm-matrix'],
  ['tests/g.real.test.ts', 'real'],
  ['tests/chaos/h.chaos.ts', 'chaos'],
  ['tests/ipvs-cluster.vm.test.ts', 'vm'],
  ['tests/promise/nftables.netns.test.ts', 'promise'],
];

for (const [file, part] of parts)
  test(`${file} belongs to ${part ?? 'no part'}`, () => {
    assert.equal(partOf(file)?.name ?? null, part);
    assert.ok(PARTS.filter(({ has }) => has(file)).length <= 1);
  });

const commands: readonly (readonly [words: string, command: Command])[] = [
  ['', { kind: 'default' }],
  ['all', { kind: 'all', isFull: false }],
  ['all --full', { kind: 'all', isFull: true }],
  ['all --ful', { kind: 'usage', reason: 'all has no argument --ful' }],
  ['changed', { kind: 'changed', revision: null }],
  ['changed HEAD~2', { kind: 'changed', revision: 'HEAD~2' }],
  ['changed a b', { kind: 'usage', reason: 'changed has one argument at most' }],
  ['unit', { kind: 'files', files: ['src/a.test.ts'], areNamed: false }],
  [
    'netns',
    {
      kind: 'files',
      files: ['tests/promise/nftables.netns.test.ts', 'tests/d.netns.test.ts', 'src/b.netns.test.ts'],
      areNamed: false,
    },
  ],
  ['unit ./src/a.test.ts', { kind: 'files', files: ['src/a.test.ts'], areNamed: true }],
  ['unit src/none.test.ts', { kind: 'usage', reason: 'there is no file src/none.test.ts' }],
  ['unit src/a.ts', { kind: 'usage', reason: 'src/a.ts is not a test file' }],
  ['chaos ebpf ipvs', { kind: 'chaos', modes: ['ebpf', 'ipvs'] }],
  ['help', { kind: 'help' }],
  ['units', { kind: 'usage', reason: 'there is no part units' }],
];

for (const [words, expected] of commands)
  test(`./test ${words}`, () => {
    assert.deepEqual(parseCommand(words === '' ? [] : words.split(' '), FILES), expected);
  });

test('./test all runs each test file once, but chaos', () => {
  const expected = FILES.filter((file) => !['src/a.ts', 'tests/chaos/h.chaos.ts'].includes(file));
  assert.deepEqual(allFiles(FILES, false).toSorted(), expected);
});

test('./test all leaves the files of the full suite to --full; all of them exist', () => {
  const names = Object.keys(FULL_FILES);
  assert.deepEqual(allFiles([...FILES, ...names], false), allFiles(FILES, false));
  assert.deepEqual(allFiles(names, true).toSorted(), names.toSorted());
  assert.deepEqual(
    names.filter((file) => !existsSync(join(root, file))),
    [],
  );
});

test('./test runs unit files and the main promise, and says what it leaves out', () => {
  const chosen = defaultFiles(FILES);
  assert.deepEqual(chosen.toSorted(), ['src/a.test.ts', 'tests/promise/nftables.netns.test.ts']);
  assert.deepEqual(
    leftOutLines(chosen, FILES).map((line) =>
      line
        .replace(/ files left out.*/, '')
        .replace(/ +/g, ' ')
        .trim(),
    ),
    [
      './test matrix 1 of 1',
      './test clusters 1 of 1',
      './test rooms 1 of 1',
      './test built 1 of 1',
      './test vm 2 of 2',
      './test vm-matrix 1 of 1',
      './test real 1 of 1',
    ],
  );
});

test('each test file of the repository belongs to exactly one part', () => {
  const found = ['src', 'tests', 'tools'].flatMap((folder) =>
    readdirSync(join(root, folder), { withFileTypes: true, recursive: true })
      .filter((entry) => entry.isFile() && /\.(test|chaos)\.ts$/.test(entry.name))
      .map((entry) => relative(root, join(entry.parentPath, entry.name))),
  );
  assert.ok(found.length > 0);
  assert.deepEqual(
    found.filter((file) => PARTS.filter(({ has }) => has(file)).length !== 1),
    [],
  );
});

test('the quick files of the default suite are packet test files that exist', () => {
  const wrong = Object.keys(DEFAULT_FILES).filter(
    (file) => !existsSync(join(root, file)) || (partOf(file)?.name ?? 'unit') === 'unit',
  );
  assert.deepEqual(wrong, []);
});
