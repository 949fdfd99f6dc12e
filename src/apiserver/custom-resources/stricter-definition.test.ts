import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import { startApi } from '../testing/api.ts';
import { definitionOf } from './testing/definition.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

test('a definition that became stricter does not prevent changes of other fields', async () => {
  const merge = { 'content-type': 'application/merge-patch+json' };
  const pump = (properties: object, rules: object[] = []) =>
    definitionOf('water.example.com', 'pumps', 'Pump', {
      spec: { type: 'object', properties, 'x-kubernetes-validations': rules },
    });
  const item = (phase: object) => ({ type: 'object', properties: { name: { type: 'string' }, phase } });
  const properties = (phase: object) => ({
    phase,
    note: { type: 'string' },
    byName: {
      type: 'array',
      items: { ...item(phase), required: ['name'] },
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['name'],
    },
    atomic: { type: 'array', items: item(phase) },
    map: { type: 'object', additionalProperties: item(phase) },
  });
  await request('POST', DEFINITIONS, pump(properties({ type: 'string' })));
  const pumps = '/apis/water.example.com/v1/namespaces/default/pumps';
  await eventually(
    () => request('GET', pumps),
    ({ status }) => status === 200,
  );
  const spec = {
    phase: 'old',
    byName: [{ name: 'a', phase: 'old' }],
    atomic: [{ name: 'a', phase: 'old' }],
    map: { a: { phase: 'old' } },
  };
  const made = await request('POST', pumps, {
    apiVersion: 'water.example.com/v1',
    kind: 'Pump',
    metadata: { name: 'one' },
    spec,
  });
  assert.equal(made.status, 201);
  const stricter = pump(properties({ type: 'string', enum: ['new'] }), [{ rule: "self.phase == 'new'" }]);
  await request('PATCH', `${DEFINITIONS}/pumps.water.example.com`, stricter, merge);
  await eventually(
    () => request('PATCH', `${pumps}/one?dryRun=All`, { spec: { phase: 'other' } }, merge),
    ({ status }) => status === 422,
  );
  const rows: readonly [what: string, patch: object, status: number][] = [
    ['a label', { metadata: { labels: { a: 'b' } } }, 200],
    ['another field of a map', { spec: { map: { a: { name: 'b' } } } }, 422],
    [
      'another item of a list by keys',
      { spec: { byName: [...spec.byName, { name: 'b', phase: 'new' }] } },
      422,
    ],
    ['a new invalid value', { spec: { phase: 'other' } }, 422],
    ['another item of an atomic list', { spec: { atomic: [...spec.atomic, { phase: 'new' }] } }, 422],
  ];
  for (const [what, patch, status] of rows) {
    const answer = await request('PATCH', `${pumps}/one?dryRun=All`, patch, merge);
    assert.equal(answer.status, status, `${what}: ${JSON.stringify(answer.body)}`);
  }
});
