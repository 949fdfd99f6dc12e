import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { checksumText, debianComponent, differences, npmComponents, spdxDocument } from './release-parts.ts';

const ROOT = join(import.meta.dirname, '..');
const json = (file: string) => JSON.parse(readFileSync(join(ROOT, file), 'utf8'));

describe('components of npm', () => {
  const components = npmComponents(json('package-lock.json'));
  test('they contain the dependencies of package.json in their versions, with digests', () => {
    for (const [name, version] of Object.entries(json('package.json').dependencies)) {
      const found = components.find((one) => one.name === name);
      assert.equal(found?.version, version, name);
      assert.match(found?.sha512 ?? '', /^[0-9a-f]{128}$/, name);
    }
  });
  test('they contain no development dependencies, and no package of another system', () => {
    const names = components.map(({ name }) => name);
    for (const name of Object.keys(json('package.json').devDependencies))
      assert.ok(!names.includes(name), name);
    assert.deepEqual(
      names.filter((name) => /darwin|win32|freebsd/.test(name)),
      [],
    );
  });
  test('a nested package has the name after its last folder, and a scope is escaped in its URL', () => {
    const packages = { 'node_modules/a/node_modules/@b/c': { version: '1.0.0' } };
    assert.deepEqual(npmComponents({ packages }), [
      { name: '@b/c', version: '1.0.0', purl: 'pkg:npm/%40b/c@1.0.0' },
    ]);
  });
});

test('a Debian package is named by its file, with epoch and plus signs', () => {
  assert.deepEqual(debianComponent({ file: 'libc6_1%3a2.36-9+deb12u13_amd64.deb', sha256: 'aa' }), {
    name: 'libc6',
    version: '1:2.36-9+deb12u13',
    sha256: 'aa',
    purl: 'pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u13?arch=amd64',
  });
  assert.throws(
    () => debianComponent({ file: 'libc6.deb', sha256: '' }),
    /is not the name of a Debian package/,
  );
});

test('the SBOM is the same for the same files, with a package for each file and each component once', () => {
  const shared = { name: 'ws', version: '8.0.0', purl: 'pkg:npm/ws@8.0.0' };
  const release = {
    version: '1.2.3',
    created: 1_700_000_000,
    contents: [
      { file: 'a.tgz', sha256: 'aa', components: [shared] },
      {
        file: 'b.tar',
        sha256: 'bb',
        components: [shared, { ...shared, name: 'yaml', purl: 'pkg:npm/yaml@8.0.0' }],
      },
    ],
  };
  const document = spdxDocument(release);
  assert.deepEqual(spdxDocument(release), document);
  assert.equal(document.creationInfo.created, '2023-11-14T22:13:20Z');
  assert.deepEqual(
    document.packages.map(({ name }) => name),
    ['a.tgz', 'b.tar', 'ws', 'yaml'],
  );
  const ids = document.packages.map(({ SPDXID }) => SPDXID);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, /^SPDXRef-[A-Za-z0-9.-]+$/);
  assert.deepEqual(
    document.relationships.filter(({ spdxElementId, relatedSpdxElement }) =>
      [spdxElementId, relatedSpdxElement].some((id) => id !== 'SPDXRef-DOCUMENT' && !ids.includes(id)),
    ),
    [],
  );
  assert.equal(
    document.relationships.filter(({ relationshipType }) => relationshipType === 'CONTAINS').length,
    3,
  );
});

test('files that differ, or that one build lacks, are named', () => {
  const first = new Map([
    ['a', '1'],
    ['b', '2'],
    ['c', '3'],
  ]);
  assert.deepEqual(differences(first, new Map(first)), []);
  assert.deepEqual(
    differences(
      first,
      new Map([
        ['a', '1'],
        ['b', '9'],
        ['d', '4'],
      ]),
    ),
    [
      'b: 2 in the first build, 9 in the second',
      'c: 3 in the first build, absent in the second',
      'd: absent in the first build, 4 in the second',
    ],
  );
});

test('checksums are sorted, and readable by sha256sum', () => {
  assert.equal(
    checksumText(
      new Map([
        ['b', '22'],
        ['a', '11'],
      ]),
    ),
    '11  a\n22  b\n',
  );
});
