import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startApi } from '../testing/api.ts';
import { definitionOf } from './testing/definition.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All';
const text = { type: 'string' };
const together = /additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive/;

// As kube-apiserver 1.36 judges them.
for (const [what, schema, refusal] of [
  ['properties and any others', { properties: { a: text }, additionalProperties: true }, null],
  ['properties and no others', { properties: { a: text }, additionalProperties: false }, together],
  ['properties and others of a schema', { properties: { a: text }, additionalProperties: text }, together],
  ['no properties and no others', { properties: {}, additionalProperties: false }, null],
  ['others of a schema', { additionalProperties: text }, null],
] as const) {
  test(`a schema with ${what} is ${refusal ? 'refused' : 'accepted'}`, async () => {
    const definition = definitionOf('water.example.com', 'pumps', 'Pump', {
      spec: { type: 'object', ...schema },
    });
    const { status, body } = await request('POST', DEFINITIONS, definition);
    assert.equal(status, refusal ? 422 : 201, body.message);
    if (refusal) assert.match(body.message, refusal);
  });
}
