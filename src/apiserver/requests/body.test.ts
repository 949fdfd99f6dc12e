import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CORE, startApi } from '../testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;

test('an apply of nearly JSON is read as YAML', async () => {
  const path = `${CORE}/configmaps/nearly-json?fieldManager=test`;
  const apply = { 'content-type': 'application/apply-patch+yaml' };
  const text =
    '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nearly-json"}, "data": {"a": "b",},}';
  const made = await request('PATCH', path, text, apply);
  assert.equal(made.status, 201, JSON.stringify(made.body));
  assert.deepEqual(made.body.data, { a: 'b' });
  const { status } = await request('PATCH', path, text, { 'content-type': 'application/merge-patch+json' });
  assert.equal(status, 400);
});
