import assert from 'node:assert/strict';
import { test } from 'node:test';
import { selectChanged } from './changed.ts';
import { importGraph } from './import-graph.ts';

const TEXTS = new Map([
  ['src/lib/text.ts', ''],
  ['src/lib/text.test.ts', "import './text.ts';"],
  ['src/dataplane/ebpf/maps.ts', "import '../../lib/text.ts';"],
  ['src/dataplane/ebpf/maps.test.ts', "import './maps.ts';"],
  ['src/dataplane/ebpf/ebpf.netns.test.ts', "import './maps.ts';"],
  ['src/dataplane/ebpf/far.netns.test.ts', "import './near.ts';"],
  ['src/dataplane/ebpf/near.ts', "import './maps.ts';"],
  ['src/dataplane/ebpf/ebpf.vm.test.ts', "import './maps.ts';"],
  ['src/proxy/loop.netns.test.ts', "import '../dataplane/ebpf/maps.ts';"],
  ['src/cli/chart.test.ts', "read('deploy/chart.yaml');"],
  ['tests/chart.netns.test.ts', "read('../deploy/chart.yaml');"],
  ['src/cli/other.test.ts', "read('deploy/chart.yaml.old');"],
  ['tests/testing/scene.ts', ''],
  ['tests/promise/ebpf.netns.test.ts', "import '../testing/scene.ts';"],
  ['tests/promise/nftables.netns.test.ts', "import '../testing/scene.ts';"],
  ['tests/dns.netns.test.ts', "import './testing/scene.ts';"],
  ['tests/pods.netns.test.ts', "import './testing/scene.ts';"],
  ['tests/all.matrix.test.ts', "import './testing/scene.ts';"],
  ['tests/documents.test.ts', ''],
  ['tests/imports.test.ts', ''],
  ['tests/bare-errors.test.ts', ''],
  ['tests/retired-words.test.ts', ''],
]);

/** Tests that read the whole repository. */
const READERS = /^tests\/(documents|imports|bare-errors|retired-words)\.test\.ts$/;

const rows: readonly {
  readonly name: string;
  readonly changed: readonly string[];
  readonly chosen: readonly string[];
  readonly leftOut: readonly string[];
}[] = [
  {
    name: 'a file of a mode runs its unit and packet tests, and names its proof on a cluster',
    changed: ['src/dataplane/ebpf/maps.ts'],
    chosen: [
      'src/dataplane/ebpf/ebpf.netns.test.ts',
      'src/dataplane/ebpf/ebpf.vm.test.ts',
      'src/dataplane/ebpf/far.netns.test.ts',
      'src/dataplane/ebpf/maps.test.ts',
    ],
    leftOut: ['src/proxy/loop.netns.test.ts', 'tests/promise/ebpf.netns.test.ts'],
  },
  {
    name: 'a file that all rooms import runs all unit tests of its importers',
    changed: ['src/lib/text.ts'],
    chosen: ['src/dataplane/ebpf/maps.test.ts', 'src/lib/text.test.ts'],
    leftOut: [
      'src/dataplane/ebpf/ebpf.netns.test.ts',
      'src/dataplane/ebpf/ebpf.vm.test.ts',
      'src/dataplane/ebpf/far.netns.test.ts',
      'src/proxy/loop.netns.test.ts',
    ],
  },
  {
    name: 'a helper of whole clusters runs one file of each part',
    changed: ['tests/testing/scene.ts'],
    chosen: ['tests/dns.netns.test.ts', 'tests/promise/ebpf.netns.test.ts'],
    leftOut: ['tests/all.matrix.test.ts', 'tests/pods.netns.test.ts', 'tests/promise/nftables.netns.test.ts'],
  },
  {
    name: 'a test file that differs runs, whatever its part',
    changed: ['tests/all.matrix.test.ts'],
    chosen: ['tests/all.matrix.test.ts'],
    leftOut: [],
  },
  {
    name: 'a manifest runs the unit tests that name it',
    changed: ['deploy/chart.yaml'],
    chosen: ['src/cli/chart.test.ts'],
    leftOut: ['tests/chart.netns.test.ts'],
  },
  { name: 'a deleted file runs only the readers', changed: ['src/lib/gone.ts'], chosen: [], leftOut: [] },
  { name: 'a file that no test reads', changed: ['LICENSE'], chosen: [], leftOut: [] },
];

for (const { name, changed, chosen, leftOut } of rows)
  test(`changed: ${name}`, () => {
    const selection = selectChanged(changed, importGraph(TEXTS, { withTypes: false }), TEXTS);
    const own = [...selection.chosen.keys()].filter((file) => !READERS.test(file));
    assert.deepEqual(own.sort(), chosen);
    assert.deepEqual([...selection.leftOut].sort(), leftOut);
  });

test('changed: each reader of the whole repository runs for the paths that it reads', () => {
  const readersOf = (path: string) =>
    [...selectChanged([path], importGraph(TEXTS, { withTypes: false }), TEXTS).chosen.keys()].filter((file) =>
      READERS.test(file),
    );
  const short = (files: readonly string[]) =>
    files.map((file) => file.replace(/^tests\/|\.test\.ts$/g, '')).sort();
  assert.deepEqual(short(readersOf('src/lib/text.ts')), [
    'bare-errors',
    'documents',
    'imports',
    'retired-words',
  ]);
  assert.deepEqual(short(readersOf('docs/architecture.md')), ['documents', 'imports', 'retired-words']);
  assert.deepEqual(short(readersOf('README.md')), ['documents', 'retired-words']);
  assert.deepEqual(short(readersOf('package.json')), ['documents']);
});
