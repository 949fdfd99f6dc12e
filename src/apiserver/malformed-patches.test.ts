import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { configMap, startApi } from './testing/api.ts';

// Statuses and messages are those of kube-apiserver 1.36, as far as it words them.

const api = startApi();
after(() => api.server.close());
const { request } = api;
const PATH = '/api/v1/namespaces/default/configmaps';
before(() => request('POST', PATH, configMap('a', { x: '1' })));

const JSON_PATCH = 'application/json-patch+json';
const MERGE = 'application/merge-patch+json';
const STRATEGIC = 'application/strategic-merge-patch+json';

for (const [what, type, patch, status, message] of [
  ['a list', MERGE, [], 400, /cannot unmarshal array into Go value of type map\[string\]interface \{\}/],
  ['a number', MERGE, 5, 400, /cannot unmarshal number/],
  ['nothing', MERGE, null, 400, /^Invalid JSON Patch$/],
  [
    'an object',
    JSON_PATCH,
    {},
    400,
    /cannot unmarshal object into Go value of type \[\]handlers\.jsonPatchOp/,
  ],
  ['an operation that is a number', JSON_PATCH, [5], 400, /cannot unmarshal number into Go value/],
  ['an operation without op', JSON_PATCH, [{ path: '/data/q' }], 422, /^the server rejected our request/],
  ['an operation without path', JSON_PATCH, [{ op: 'add', value: 1 }], 422, /^the server rejected/],
  ['a path without slash', JSON_PATCH, [{ op: 'add', path: 'data', value: 1 }], 422, /^the server rejected/],
  ['a list', STRATEGIC, [], 400, /cannot unmarshal array/],
  ['data that is a number', STRATEGIC, { data: 5 }, 422, /^ "" is invalid: patch: Invalid value/],
  ['data that is a list', MERGE, { data: [1] }, 422, /cannot unmarshal array into Go struct field/],
  ['data that is a number', JSON_PATCH, [{ op: 'add', path: '/data', value: 5 }], 422, /^ "" is invalid/],
  ['another kind', MERGE, { kind: 'Pod' }, 422, /cannot be handled as a ConfigMap/],
  ['another version', MERGE, { apiVersion: 'v2' }, 422, /^ "" is invalid: patch: Invalid value/],
  ['metadata that is a text', MERGE, { metadata: 'x' }, 422, /of type v1\.ObjectMeta/],
] as const) {
  const name = type.slice('application/'.length);
  test(`a patch (${name}) with ${what} is refused with ${status}`, async () => {
    const answer = await request('PATCH', `${PATH}/a`, patch, { 'content-type': type });
    assert.equal(answer.status, status, answer.body.message);
    assert.match(answer.body.message, message);
  });
}

test('a patch with an unknown field is refused with 422 under strict validation', async () => {
  const headers = { 'content-type': MERGE };
  const answer = await request('PATCH', `${PATH}/a?fieldValidation=Strict`, { datta: {} }, headers);
  assert.equal(answer.status, 422);
  assert.match(answer.body.message, /strict decoding error: unknown field "datta"/);
});
