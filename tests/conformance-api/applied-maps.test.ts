import { strict as assert } from 'node:assert';
import { after, before, describe, test } from 'node:test';
import { defineKind, sendServed, wordsOfError } from './custom-kind.ts';
import { type ApiAnswer, type Oracle, startOracle } from './oracle.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

const PRESERVE = { 'x-kubernetes-preserve-unknown-fields': true };
const text = { type: 'string' };
const number = { type: 'integer' };
const intOrString = { 'x-kubernetes-int-or-string': true };
const set = { type: 'array', items: text, 'x-kubernetes-list-type': 'set' };
const keyed = {
  type: 'array',
  items: { type: 'object', properties: { a: number }, required: ['a'] },
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['a'],
};
const object = (properties: object, ...more: object[]) => ({
  type: 'object',
  properties,
  ...Object.assign({}, ...more),
});
const map = (additionalProperties: object | true, ...more: object[]) => ({
  type: 'object',
  additionalProperties,
  ...Object.assign({}, ...more),
});

/** Schemas of a field. Those of Rook's definitions preserve unknown fields beside additionalProperties. */
const schemas: readonly [what: string, schema: object][] = [
  ['a map of texts', map(text)],
  ['a map of texts that preserves', map(text, PRESERVE)],
  ['a map of texts that preserves and is nullable', map(text, PRESERVE, { nullable: true })],
  ['a map of maps, which preserves', map(map(text), PRESERVE)],
  ['a map of maps that preserve', map(map(text, PRESERVE))],
  ['a map of objects', map(object({ a: text }))],
  ['a map of objects, which preserves', map(object({ a: text }), PRESERVE)],
  ['a map of objects that preserve', map(object({ a: text }, PRESERVE))],
  ['a map in an object that preserves', object({ m: map(text) }, PRESERVE)],
  [
    'a list of maps in an object that preserves',
    object({ m: { type: 'array', items: map(text) } }, PRESERVE),
  ],
  ['a map of objects in an object that preserves', object({ m: map(object({ a: text })) }, PRESERVE)],
  ['a map of numbers that preserves', map(number, PRESERVE)],
  ['a map of numbers or texts that preserves', map(intOrString, PRESERVE)],
  ['a number or text', object({ a: intOrString })],
  ['a number or text in an object that preserves', object({ a: intOrString }, PRESERVE)],
  ['a map of anything', map(PRESERVE)],
  ['a map of anything that preserves', map(PRESERVE, PRESERVE)],
  ['a map without a schema of its values', map(true)],
  ['an atomic map that preserves', map(text, PRESERVE, { 'x-kubernetes-map-type': 'atomic' })],
  ['a set', object({ a: set })],
  ['a set in an object that preserves', object({ a: set }, PRESERVE)],
  ['a map of sets', map(set)],
  ['a map of sets that preserves', map(set, PRESERVE)],
  ['a map of lists with keys', map(keyed)],
];

const values: readonly unknown[] = [
  ...[{ a: 'x' }, { a: 1 }, { a: true }, { a: [] }, { a: {} }, {}, null, [], 'text'],
  ...[{ a: { b: 'x' } }, { a: { b: 1 } }, { a: { a: 'x', z: 2 } }, { a: { a: 1 } }],
  ...[{ a: ['x', 'x'] }, { a: ['x', 'y'] }, { a: [1] }, { a: [{ a: 1 }, { a: 2 }] }],
  ...[{ m: { a: 1 } }, { m: { a: 'x' }, n: { o: 1 } }, { m: { a: { a: 1 } } }],
  ...[{ m: { a: { a: 'x', z: 1 } } }, { m: [{ a: 1 }] }, { m: [{ a: 'x' }] }],
];

const define = (server: Oracle, index: number, schema: object): Promise<void> =>
  defineKind(server, {
    ...{ singular: `map${index}`, kind: `Map${index}` },
    schema: object({ spec: object({ field: schema }) }),
  });

function apply(server: Oracle, index: number, name: string, field: unknown): Promise<ApiAnswer> {
  const path = `/apis/example.com/v1/map${index}s/${name}?fieldManager=test`;
  const body = { apiVersion: 'example.com/v1', kind: `Map${index}`, metadata: { name }, spec: { field } };
  return sendServed(server, 'PATCH', path, body, 'application/apply-patch+yaml');
}

/** Returns what both servers must answer alike: status, message, and the object with the owners of its fields. */
function compared({ status, body }: ApiAnswer): unknown {
  const { kind, message, spec, metadata } = body as {
    readonly kind: string;
    readonly message?: string;
    readonly spec: unknown;
    readonly metadata: { readonly managedFields?: { readonly fieldsV1: unknown }[] };
  };
  if (kind !== 'Status')
    return { status, spec, fields: metadata.managedFields?.map(({ fieldsV1 }) => fieldsV1) };
  return { status, problem: wordsOfError(message) };
}

describe('server-side apply of custom objects with', { skip, timeout: 120_000 }, () => {
  let real: Oracle;
  let ours: Oracle;
  before(async () => {
    [real, ours] = await Promise.all([startOracle(assets ?? ''), startOurServer()]);
  });
  after(async () => {
    await real?.stop();
    await ours?.stop();
  });
  for (const [index, [what, schema]] of schemas.entries())
    test(what, async () => {
      await Promise.all([define(real, index, schema), define(ours, index, schema)]);
      for (const [number, value] of values.entries()) {
        const name = `one-${number}`;
        const [expected, found] = await Promise.all([
          apply(real, index, name, value),
          apply(ours, index, name, value),
        ]);
        assert.deepEqual(compared(found), compared(expected), JSON.stringify(value));
      }
    });
});
