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

// Compared with kube-apiserver 1.36; of a patch that does not fit the object, its answer has no reason.
const PODS = '/api/v1/namespaces/default/pods';
before(() =>
  request('POST', PODS, {
    metadata: { name: 'p', labels: { a: 'b' }, finalizers: ['a.b/c', 'a.b/d'] },
    spec: {
      automountServiceAccountToken: false,
      containers: [
        { name: 'c', image: 'i', ports: [{ containerPort: 80 }] },
        { name: 'd', image: 'i' },
      ],
    },
  }),
);
const containers = (...items: unknown[]) => ({ spec: { containers: items } });
const order = (value: unknown, more: object = {}) => ({
  spec: { '$setElementOrder/containers': value, ...more },
});
const SAME = /^list element types are not identical: \[\[/;
const KEY = /does not contain declared merge key: name$/;
const strategicRows: [what: string, patch: unknown, status: number, message?: RegExp][] = [
  ['nothing', null, 200],
  ['another apiVersion, which is ignored', { apiVersion: 'v2' }, 200],
  ['another kind, which is ignored', { kind: 'Foo' }, 200],
  ['a number as apiVersion', { apiVersion: 5 }, 422],
  ['a number', 5, 400, /cannot unmarshal number/],
  ['a number among objects', containers(5), 500, SAME],
  ['a list among objects', containers([]), 500, SAME],
  ['a null among objects', containers(null), 500, SAME],
  ['an item without merge key', containers({ image: 'x' }), 500, /^map: map\[image:x\] does not contain/],
  ['an item to delete without merge key', containers({ $patch: 'delete' }), 500, KEY],
  [
    'an unknown directive in an item',
    containers({ $patch: 'foo', name: 'c' }),
    500,
    /^unknown patch type: foo in map: map\[\$patch:foo name:c\]$/,
  ],
  ['a directive that is a number', containers({ $patch: 5, name: 'c' }), 500, /^unknown patch type/],
  [
    'the directive merge in an item',
    containers({ $patch: 'merge', name: 'c' }),
    500,
    /^merging lists cannot yet be specified/,
  ],
  ['an unknown directive', { $patch: 'foo' }, 500, /^unknown patch type: foo in map: map\[\$patch:foo\]$/],
  ['an unknown directive in an object', { spec: { $patch: 'foo' } }, 500, /^unknown patch type: foo/],
  ['a directive that is null', { spec: { $patch: null } }, 500, /^unknown patch type: %!s\(<nil>\)/],
  ['an unknown directive in a map', { metadata: { labels: { $patch: 'foo' } } }, 500, /^unknown patch type/],
  [
    '$retainKeys that is not a list',
    { spec: { $retainKeys: 5 } },
    400,
    /^invalid patch format of retainKeys$/,
  ],
  [
    '$retainKeys without a field of the patch',
    { spec: { $retainKeys: ['x'], nodeName: 'a' } },
    400,
    /of retainKeys$/,
  ],
  ['an order that is a number', order(5), 500, /^expected a \[\]interface \{\}, but received a int64$/],
  ['an order that is null', order(null), 500, /but received a %!s\(<nil>\)$/],
  ['an order of numbers', order([5]), 500, /^value for key 0 is not a map$/],
  ['an order of texts', order(['c']), 500, /^value for key 0 is not a map$/],
  ['an order without merge keys', order([{}]), 500, /^map: map\[\] does not contain/],
  [
    'an order without an item of the patch',
    order([{ name: 'd' }], { containers: [{ name: 'c' }] }),
    500,
    /^The order in patch list/,
  ],
  ['an order of an unknown field', { spec: { '$setElementOrder/nope': ['c'] } }, 500, /json field "nope"$/],
  [
    'an order of a text',
    { spec: { '$setElementOrder/nodeName': ['a'] } },
    500,
    /^expected slice or array type/,
  ],
  ['an order without a field', { spec: { $setElementOrder: ['c'] } }, 400, /format of setElementOrder list$/],
  ['a number to delete from texts', { metadata: { '$deleteFromPrimitiveList/finalizers': [5] } }, 500, SAME],
  ['a text to delete from objects', { spec: { '$deleteFromPrimitiveList/containers': ['c'] } }, 500, SAME],
  [
    'a deletion that is not a list, which is ignored',
    { metadata: { '$deleteFromPrimitiveList/finalizers': 5 } },
    200,
  ],
  ['a number among texts', { metadata: { finalizers: [5] } }, 500, SAME],
  ['an object among texts', { metadata: { finalizers: [{}] } }, 500, SAME],
  ['a directive among texts', { metadata: { finalizers: [{ $patch: 'replace' }] } }, 500, SAME],
  [
    'an owner without fields',
    { metadata: { ownerReferences: [{}] } },
    422,
    /uid must not be empty|ownerReferences/,
  ],
  ['an owner that is a number', { metadata: { ownerReferences: [5] } }, 422],
  ['another UID', { metadata: { uid: 'x' } }, 422, /metadata\.uid: Invalid value: "x": field is immutable/],
  ['a list that is an object', { spec: { containers: {} } }, 422],
  ['an object that is a list', { spec: [] }, 422],
  ['a text that is a number', containers({ name: 'c', image: 5 }), 422],
];
for (const [what, patch, status, message = /^/] of strategicRows) {
  test(`a strategic merge patch with ${what} is answered with ${status}`, async () => {
    const answer = await request('PATCH', `${PODS}/p?dryRun=All`, patch, { 'content-type': STRATEGIC });
    assert.equal(answer.status, status, answer.body.message);
    if (status === 200) return;
    assert.match(answer.body.message, message);
    assert.equal('reason' in answer.body, status !== 500);
  });
}

test('the answer to a patch does not repeat a long list as a whole', async () => {
  const patch = containers(5, ...Array.from({ length: 5000 }, (_, at) => ({ name: `c${at}`, image: 'i' })));
  const answer = await request('PATCH', `${PODS}/p`, patch, { 'content-type': STRATEGIC });
  assert.equal(answer.status, 500);
  assert.ok(answer.body.message.length < 5000, answer.body.message.length);
});
