import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { readManifests } from './manifests.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-manifests-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const rows: [what: string, content: string | null, message: RegExp][] = [
  ['a file that does not exist', null, /^cannot read .*\/m\.yaml: no such file$/],
  ['YAML that does not parse', 'a: [', /^.*\/m\.yaml: .*/],
];
for (const [what, content, message] of rows) {
  test(`refuses ${what}`, async () => {
    const file = join(folder, 'm.yaml');
    if (content !== null) writeFileSync(file, content);
    await assert.rejects(readManifests([file]), { name: 'FairleadError', code: 'bad-manifest', message });
    rmSync(file, { force: true });
  });
}

for (const [what, content, message] of [
  ['without a kind', 'apiVersion: v1\nmetadata: {name: a}', /m\.yaml: document 2: missing kind$/],
  ['without a name', 'kind: Pod\napiVersion: v1', /m\.yaml: document 2: missing metadata\.name$/],
  ['that is not an object', '[a, b]', /m\.yaml: document 2: not an object$/],
  [
    'with an item without a name',
    'kind: List\napiVersion: v1\nitems: [{kind: Pod, apiVersion: v1}]',
    /m\.yaml: document 2, item 1: missing metadata\.name$/,
  ],
] as const) {
  test(`reads the other documents beside one ${what}`, async () => {
    const file = join(folder, 'm.yaml');
    const pod = (name: string) => `kind: Pod\napiVersion: v1\nmetadata: {name: ${name}}\n`;
    writeFileSync(file, `${pod('first')}---\n${content}\n---\n${pod('last')}`);
    const { objects, problems } = await readManifests([file]);
    rmSync(file);
    assert.deepEqual(
      objects.map(({ name }) => name),
      ['first', 'last'],
    );
    assert.equal(problems.length, 1);
    assert.match(problems[0]?.message ?? '', message);
    assert.ok(problems[0]?.hint);
  });
}

test('refuses a folder without manifests', async () => {
  await assert.rejects(readManifests([folder]), { code: 'bad-manifest', message: /^no manifests in / });
});

test('reads the manifests of a folder by name, and no other files', async () => {
  const inside = mkdtempSync(join(folder, 'many-'));
  const pod = (name: string) => `kind: Pod\napiVersion: v1\nmetadata: {name: ${name}}\n`;
  writeFileSync(join(inside, 'b.yaml'), pod('b'));
  writeFileSync(join(inside, 'a.json'), '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}');
  writeFileSync(join(inside, 'README.md'), 'not a manifest: [');
  mkdirSync(join(inside, 'below'));
  writeFileSync(join(inside, 'below', 'c.yaml'), pod('c'));
  assert.deepEqual(
    (await readManifests([inside])).objects.map(({ name }) => name),
    ['a', 'b'],
  );
});

const server = createServer((request, response) => {
  if (request.url === '/pod.yaml') response.end('kind: Pod\napiVersion: v1\nmetadata: {name: a}\n');
  else response.writeHead(404).end();
});
let url = '';
let closedUrl = '';
before(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  closedUrl = `http://127.0.0.1:${(closed.address() as AddressInfo).port}`;
  await new Promise((resolve) => closed.close(resolve));
});
after(() => server.close());

test('reads a URL', async () => {
  const [found] = (await readManifests([`${url}/pod.yaml`])).objects;
  assert.equal(found?.name, 'a');
  assert.equal(found?.source, `${url}/pod.yaml: document 1: Pod a`);
});

for (const [what, path, message] of [
  [
    'that does not exist',
    () => `${url}/missing.yaml`,
    /^cannot read http:.*: the server answers 404 Not Found$/,
  ],
  ['of a server that does not run', () => `${closedUrl}/pod.yaml`, /^cannot read http:.*ECONNREFUSED/],
] as const) {
  test(`refuses a URL ${what}`, () =>
    assert.rejects(() => readManifests([path()]), { code: 'bad-manifest', message }));
}
