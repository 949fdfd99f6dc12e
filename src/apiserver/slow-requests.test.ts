import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { CORE, configMap, startApi } from './testing/api.ts';

// Requests that any user may send. An expression that reads its text again from each place of it does not end on them.

const api = startApi();
after(() => api.server.close());
const LENGTH = 1_000_000;

for (const path of ['/api', '/apis', '/openapi/v3'])
  test(`a path below ${path} with a million slashes`, async () => {
    const answer = await api.request('GET', `${path}${'/'.repeat(LENGTH)}x`);
    assert.equal(answer.status, 404);
  });

test('YAML with a million spaces behind a key that is there twice', async () => {
  const text = `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slow}\ndata:\n  ? a\n  : b\n  ? a${' '.repeat(LENGTH)}x\n`;
  const yaml = { 'content-type': 'application/yaml' };
  const twice = text.replace(/ +x\n$/, `${' '.repeat(LENGTH)}\n  : c\n`);
  const { status } = await api.request('POST', `${CORE}/configmaps?fieldValidation=Strict`, twice, yaml);
  assert.equal(status, 400);
});

describe('an object that is made to have many warnings', () => {
  const warned = async (path: string, body: object) => {
    const { status, headers } = await api.request('POST', `${CORE}/${path}`, body);
    assert.equal(status, 201);
    return (headers['warning'] ?? '').length;
  };
  test('fields that its kind does not have', async () => {
    const fields = Object.fromEntries(Array.from({ length: 60_000 }, (_, i) => [`x${i}`, 1]));
    const length = await warned('configmaps?fieldValidation=Warn', { ...configMap('many'), ...fields });
    assert.ok(length > 1000 && length < 10_000, `${length} characters`);
  });
  for (const [what, portOf] of [
    ['different ports', (i: number) => ({ containerPort: 1 + i, name: `p${i}` })],
    ['one port', (i: number) => ({ containerPort: 80, name: `p${i}` })],
    ['one port at different ports of the node', (i: number) => ({ containerPort: 80, hostPort: 1 + i })],
  ] as const)
    test(`a container with ${what}, 40,000 times`, async () => {
      const ports = Array.from({ length: 40_000 }, (_, i) => portOf(i));
      const name = what.replaceAll(' ', '-');
      const length = await warned('pods', {
        ...{ apiVersion: 'v1', kind: 'Pod', metadata: { name } },
        spec: { containers: [{ name: 'c', image: 'x', ports }] },
      });
      assert.ok(length < 10_000, `${length} characters`);
    });
});

test('a query with more parameters than Go reads is refused before the user is', async () => {
  const { status, body } = await api.request('GET', `${CORE}/pods?${'a&'.repeat(400_000)}`);
  assert.deepEqual([status, body.message], [400, 'number of URL query parameters exceeded limit']);
  assert.equal((await api.request('GET', `${CORE}/pods?${'a&'.repeat(9_000)}`)).status, 200);
});
