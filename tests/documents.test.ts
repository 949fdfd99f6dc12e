import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, test } from 'node:test';

const root = resolve(import.meta.dirname, '..');
const read = (file: string) => readFileSync(join(root, file), 'utf8');
const DOCUMENTS = [
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'SECURITY.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const FOLDERS = ['src', 'tests', 'tools', 'bench', 'bpf', 'cni', 'deploy', 'docs', 'examples'];
const FILES = FOLDERS.flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
);
const BASENAMES = new Set(FILES.map((file) => file.slice(file.lastIndexOf('/') + 1)));

describe('documents name files that exist', () => {
  for (const document of DOCUMENTS) {
    test(document, () => {
      const missing = [...read(document).matchAll(/`([^`\n]+)`/g)].flatMap(([, code = '']) =>
        [...pathsIn(code), ...sourcesIn(code)].filter((path) => !isThere(document, path)),
      );
      assert.deepEqual(missing, []);
    });
  }
});

describe('links of documents lead to a file and a heading', () => {
  for (const document of DOCUMENTS) {
    test(document, () => {
      const broken = [...read(document).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)/g)].flatMap(
        ([link, path = '', heading]) => {
          const file = path === '' ? document : join(dirname(document), path);
          if (!existsSync(join(root, file))) return link;
          return heading === undefined || anchorsOf(file).includes(heading) ? [] : link;
        },
      );
      assert.deepEqual(broken, []);
    });
  }
});

describe('docs/dependencies.md has a row for each dependency', () => {
  const sections = new Map(
    read('docs/dependencies.md')
      .split(/^## /m)
      .map((text) => [text.split('\n', 1)[0], text]),
  );
  const rowsOf = (title: string) =>
    [...(sections.get(title) ?? '').matchAll(/^\| (`[^|]+`) \|/gm)]
      .flatMap(([, names = '']) => names.split(', '))
      .map((name) => name.replaceAll('`', ''))
      .sort();
  const { dependencies, devDependencies } = JSON.parse(read('package.json'));

  test('npm packages', () => {
    assert.deepEqual(rowsOf('npm, at run time'), Object.keys(dependencies).sort());
    assert.deepEqual(rowsOf('npm, for development'), Object.keys(devDependencies).sort());
  });
  test('Debian packages that the launcher installs', () => {
    assert.deepEqual(rowsOf('Debian packages'), packagesOf('fairlead'));
  });
  test('Debian packages that the tests install', () => {
    const named = sections.get('Debian packages') ?? '';
    assert.deepEqual(
      packagesOf('test').filter((name) => !named.includes(`\`${name}\``)),
      [],
    );
  });
});

/** Paths from the root: "src/nft/table.ts", "bench/results/". */
const pathsIn = (code: string): string[] =>
  [...code.matchAll(/(?<![\w/.])(?:src|tests|tools|bench|bpf|deploy|docs|examples)\/[\w./-]+/g)].map(
    ([path]) => path.replace(/[./]+$/, ''),
  );

/** Names of source files alone: "table.ts". */
const sourcesIn = (code: string): string[] =>
  [...code.matchAll(/(?<![\w/.*}-])[\w.-]+\.(?:ts|tsx|mjs)\b/g)].map(([name]) => name);

function isThere(document: string, path: string): boolean {
  // "src/dataplane/MODE" stands for several; paths in a document may begin beside it.
  if (/[A-Z]{4}/.test(path)) return true;
  if (!path.includes('/')) return BASENAMES.has(path);
  return [root, join(root, dirname(document))].some((folder) => existsSync(join(folder, path)));
}

/** The anchors of headings, as GitHub makes them. */
const anchorsOf = (file: string): string[] =>
  [...read(file).matchAll(/^#+ (.*)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );

/** The packages in the calls of setup_debian (tools/setup.sh): "crun=crun", or a path before the sign. */
const packagesOf = (script: string): string[] =>
  [
    ...new Set(
      [...read(script).matchAll(/setup_debian ([^;)\n|&]+)/g)].flatMap(([, pairs = '']) =>
        pairs.split(/\s+/).flatMap((pair) => pair.split('=')[1] ?? []),
      ),
    ),
  ].sort();
