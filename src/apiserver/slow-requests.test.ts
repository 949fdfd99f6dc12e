import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CORE, startApi } from './testing/api.ts';

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
