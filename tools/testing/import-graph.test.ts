import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canShareProcess, closureOf, importersOf, importGraph } from './import-graph.ts';

const imports: readonly {
  readonly name: string;
  readonly text: string;
  readonly withTypes?: boolean;
  readonly expected: readonly string[];
}[] = [
  { name: 'a value', text: "import { b } from './b.ts';", expected: ['src/b.ts'] },
  { name: 'several lines', text: "import {\n  b,\n  c,\n} from './b.ts';", expected: ['src/b.ts'] },
  { name: 'for its effect', text: "import './b.ts';", expected: ['src/b.ts'] },
  { name: 'an export of another file', text: "export { b } from './b.ts';", expected: ['src/b.ts'] },
  { name: 'dynamic', text: "const b = await import('./b.ts');", expected: ['src/b.ts'] },
  { name: 'from another folder', text: "import { x } from '../tests/x.ts';", expected: ['tests/x.ts'] },
  { name: 'a type, left out', text: "import type { B } from './b.ts';", expected: [] },
  { name: 'a type', text: "import type { B } from './b.ts';", withTypes: true, expected: ['src/b.ts'] },
  { name: 'an exported type, left out', text: "export type { B } from './b.ts';", expected: [] },
  { name: 'a value named type', text: "import type from './b.ts';", expected: ['src/b.ts'] },
  { name: 'a package', text: "import ws from 'ws';", expected: [] },
  { name: 'a file that is not there', text: "import { n } from './none.ts';", expected: [] },
  {
    name: 'after another import',
    text: "import { a } from 'node:fs';\nimport { b } from './b.ts';",
    expected: ['src/b.ts'],
  },
];

for (const { name, text, withTypes = false, expected } of imports)
  test(`an import is found: ${name}`, () => {
    const texts = new Map([
      ['src/a.ts', text],
      ['src/b.ts', ''],
      ['tests/x.ts', ''],
    ]);
    const graph = importGraph(texts, { withTypes });
    assert.deepEqual([...(graph.files.get('src/a.ts') ?? [])], expected);
  });

const CIRCLE = new Map([
  ['a.ts', "import './b.ts';"],
  ['b.ts', "import './c.ts';"],
  ['c.ts', "import './a.ts';"],
  ['d.ts', "import './c.ts';"],
]);

test('the closure of a file has what it imports, through circles', () => {
  assert.deepEqual([...closureOf(importGraph(CIRCLE, { withTypes: false }), 'd.ts')].sort(), [
    'a.ts',
    'b.ts',
    'c.ts',
    'd.ts',
  ]);
});

test('importers have the least number of imports to the changed files', () => {
  const importers = importersOf(importGraph(CIRCLE, { withTypes: false }), ['c.ts', 'deleted.ts']);
  assert.deepEqual([...importers].sort(), Object.entries({ 'a.ts': 2, 'b.ts': 1, 'c.ts': 0, 'd.ts': 1 }));
});

const shared: readonly (readonly [name: string, text: string, imported: string, expected: boolean])[] = [
  ['a computation', 'add(1, 2);', 'export const add = 1;', true],
  ['files of its own', "import { readFileSync } from 'node:fs';", '', true],
  ['sockets in what it imports', '', "import { Socket } from 'node:net';", true],
  ['processes', "import { spawn } from 'node:child_process';", '', false],
  ['processes that it does not start itself', '', "import { spawn } from 'node:child_process';", true],
  ['the kernel', "import koffi from 'koffi';", '', false],
  ['an environment variable that is read', "if (process.env.HOME === '/') f();", '', true],
  ['an environment variable that is set', "process.env['HOME'] = '/';", '', false],
  ['a deleted environment variable', '', 'delete process.env.HOME;', false],
  ['a handler of the process', "process.on('exit', f);", '', false],
  ['a global', 'globalThis.fetch = f;', '', false],
  ['a mock of the module', 'mock.timers.enable();', '', false],
  ['a mock of the test', 't.mock.timers.enable();', '', true],
];

for (const [name, text, imported, expected] of shared)
  test(`a file that shares a process, or does not: ${name}`, () => {
    assert.equal(canShare({ 'a.test.ts': `import './b.ts';\n${text}`, 'b.ts': imported }), expected);
  });

for (const [name, imported, expected] of [
  ['a computation', 'export const add = 1;', true],
  ['files', "import { readFileSync } from 'node:fs';", false],
] as const)
  test(`a file of a room with processes shares one, or does not: ${name}`, () => {
    const texts = { 'src/runtime/a.test.ts': "import './b.ts';", 'src/runtime/b.ts': imported };
    assert.equal(canShare(texts), expected);
  });

test('processes that a helper of the test starts are its own', () => {
  const texts = { 'a.test.ts': "import './testing/b.ts';", 'testing/b.ts': "import 'node:child_process';" };
  assert.equal(canShare(texts), false);
});

function canShare(texts: Readonly<Record<string, string>>): boolean {
  const map = new Map(Object.entries(texts));
  return canShareProcess(importGraph(map, { withTypes: false }), map, Object.keys(texts)[0] ?? '');
}
