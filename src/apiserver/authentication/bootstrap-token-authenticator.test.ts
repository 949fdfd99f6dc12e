import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ApiObject } from '../object.ts';
import { createBootstrapTokenAuthenticator } from './bootstrap-token-authenticator.ts';

const NOW = Date.parse('2030-01-01T00:00:00Z');
const RIGHT = 'Bearer abcdef.0123456789abcdef';
const DATA = {
  'token-id': 'abcdef',
  'token-secret': '0123456789abcdef',
  'usage-bootstrap-authentication': 'true',
};

const ROWS: readonly {
  name: string;
  header?: string;
  data?: Record<string, string>;
  fields?: object;
  groups: string[] | null;
}[] = [
  { name: 'a token', groups: ['system:bootstrappers', 'system:authenticated'] },
  {
    name: 'a token with further groups',
    data: { 'auth-extra-groups': 'system:bootstrappers:a,system:bootstrappers:b:c' },
    groups: [
      'system:bootstrappers',
      'system:bootstrappers:a',
      'system:bootstrappers:b:c',
      'system:authenticated',
    ],
  },
  {
    name: 'a token that has not expired',
    data: { expiration: '2030-01-01T00:00:01Z' },
    groups: ['system:bootstrappers', 'system:authenticated'],
  },
  { name: 'an expired token', data: { expiration: '2030-01-01T00:00:00Z' }, groups: null },
  { name: 'a token whose expiration cannot be read', data: { expiration: 'soon' }, groups: null },
  { name: 'a wrong secret', header: 'Bearer abcdef.0123456789abcdee', groups: null },
  { name: 'an unknown identifier', header: 'Bearer abcdeg.0123456789abcdef', groups: null },
  { name: 'another kind of token', header: 'Bearer abc', groups: null },
  { name: 'no token', header: '', groups: null },
  { name: 'an empty secret', data: { 'token-secret': '' }, groups: null },
  { name: 'an identifier of another Secret', data: { 'token-id': 'abcdeg' }, groups: null },
  {
    name: 'a token for signing only',
    data: { 'usage-bootstrap-authentication': 'false' },
    groups: null,
  },
  {
    name: 'a group outside system:bootstrappers',
    data: { 'auth-extra-groups': 'system:masters' },
    groups: null,
  },
  { name: 'a Secret of another type', fields: { type: 'Opaque' }, groups: null },
];

for (const { name, header = RIGHT, data = {}, fields = {}, groups } of ROWS) {
  test(`bootstrap tokens: ${name}`, async () => {
    const secret = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'bootstrap-token-abcdef', namespace: 'kube-system' },
      type: 'bootstrap.kubernetes.io/token',
      data: Object.fromEntries(
        Object.entries({ ...DATA, ...data }).map(([key, text]) => [
          key,
          Buffer.from(text).toString('base64'),
        ]),
      ),
      ...fields,
    } as unknown as ApiObject;
    const view = {
      get: (collection: string, key: string) =>
        collection === 'secrets' && key === 'kube-system/bootstrap-token-abcdef' ? secret : undefined,
    };
    const found = await createBootstrapTokenAuthenticator(view, { now: () => NOW }).authenticate({
      headers: { authorization: header },
      certificate: null,
    });
    assert.deepEqual(found && { ...found }, groups && { name: 'system:bootstrap:abcdef', groups });
  });
}
