import { strict as assert } from 'node:assert';
import { after, before, describe, test } from 'node:test';
import { defineKind, sendServed, wordsOfError } from './custom-kind.ts';
import { type ApiAnswer, type Oracle, startOracle } from './oracle.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

const PRESERVE = { 'x-kubernetes-preserve-unknown-fields': true };
const text = { type: 'string' };
const nullable = { type: 'string', nullable: true };
const preset = { type: 'string', default: 'preset' };
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
const list = (items: object, ...more: object[]) => ({
  type: 'array',
  items,
  ...Object.assign({}, ...more),
});
const keyed = {
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['a'],
};

/** Schemas of a field. */
const schemas: readonly [what: string, schema: object][] = [
  ['a text', text],
  ['a nullable text', nullable],
  ['a default', preset],
  ['a default of a nullable text', { ...nullable, default: 'preset' }],
  ['a default of null', { ...nullable, default: null }],
  ['an object', object({ a: text })],
  ['a nullable object', object({ a: text }, { nullable: true })],
  ['an object with a required text', object({ a: text }, { required: ['a'] })],
  ['an object with a required nullable text', object({ a: nullable }, { required: ['a'] })],
  ['an object with a required default', object({ a: preset }, { required: ['a'] })],
  ['an object that needs a member', object({ a: text }, { minProperties: 1 })],
  ['an object with a nullable text', object({ a: nullable })],
  ['an object with a default of its own', object({ a: preset }, { default: {} })],
  ['an object that preserves', object({ a: text }, PRESERVE)],
  ['an object that preserves, with an enum', object({ a: { type: 'string', enum: ['x'] } }, PRESERVE)],
  ['an object with a member that preserves', object({ a: PRESERVE })],
  ['an object with a number or text', object({ a: { 'x-kubernetes-int-or-string': true } })],
  ['an object with an array', object({ a: list(text) })],
  ['an object with an array with a default', object({ a: list(text, { default: ['x'] }) })],
  ['an object in an object', object({ a: object({ a: text, b: preset }) })],
  ['a map of texts', map(text)],
  ['a map of nullable texts', map(nullable)],
  ['a map of defaults', map(preset)],
  ['a map of objects', map(object({ a: text }))],
  ['a map of maps', map(map(text))],
  ['a map of lists', map(list(text))],
  ['a map without a schema of its values', map(true)],
  ['a map of anything', map(PRESERVE)],
  ['a list of texts', list(text)],
  ['a list of nullable texts', list(nullable)],
  ['a list of defaults', list(preset)],
  ['a list of objects', list(object({ a: text }))],
  ['a list with keys', list(object({ a: text, b: text }, { required: ['a'] }), keyed)],
  ['a list with a key that has a default', list(object({ a: preset, b: text }), keyed)],
  ['a set', list(text, { 'x-kubernetes-list-type': 'set' })],
  [
    'an embedded resource',
    { type: 'object', 'x-kubernetes-embedded-resource': true, properties: { a: text }, ...PRESERVE },
  ],
  [
    'a rule about the presence of a text',
    object({ a: text }, { 'x-kubernetes-validations': [{ rule: 'has(self.a)' }] }),
  ],
  ['one of several', object({ a: text }, { anyOf: [{ required: ['a'] }, { required: ['b'] }] })],
  ['exactly one of several', object({ a: text }, { oneOf: [{ required: ['a'] }, { required: ['b'] }] })],
  ['all of several', object({ a: text }, { allOf: [{ required: ['a'] }, { required: ['b'] }] })],
  ['none of one', object({ a: text }, { not: { required: ['a'] } })],
];

const values: readonly unknown[] = [
  ...[null, {}, [], 'text', { a: null }, { a: null, b: null }, { b: null }, { a: 'x', b: null }],
  ...[{ a: { a: null } }, { a: { b: null } }, { a: { a: null, b: 'x' } }, { a: [null] }, { a: ['x', null] }],
  ...[
    [null],
    ['x', null],
    [{ a: null }],
    [{ a: 'x', b: null }],
    [{ a: null }, { a: null, b: 'x' }],
    [[null]],
  ],
  ...[
    { apiVersion: 'v1', kind: 'X', metadata: null, a: null },
    { apiVersion: null, kind: null, a: 'x' },
  ],
  ...[{ apiVersion: 'v1', kind: 'X', metadata: { name: 'x', labels: null, odd: null } }],
];

/**
 * What differs: the words about keys that are null, and which errors of an unchanged status a write of the rest repeats.
 */
const KEYS = new Set(['[{"a":null},{"a":null,"b":"x"}]']);
const EXCEPT: Readonly<Record<string, ReadonlySet<string>>> = {
  'a list with keys': KEYS,
  'a list with a key that has a default': new Set([...KEYS, '[{"a":null}]']),
  'an embedded resource': new Set(
    values
      .filter((value) => !JSON.stringify(value).includes('"metadata":null'))
      .map((value) => JSON.stringify(value)),
  ),
};

const define = (server: Oracle, index: number, field: object): Promise<void> => {
  const part = object({ field });
  return defineKind(server, {
    ...{ singular: `null${index}`, kind: `Null${index}`, subresources: { status: {} } },
    schema: object({ spec: part, status: part, top: field }),
  });
};

/** Sends a value in every kind of write, and reads what is stored. */
async function observe(server: Oracle, index: number, number: number, value: unknown) {
  const collection = `/apis/example.com/v1/null${index}s`;
  const name = `one-${number}`;
  const path = `${collection}/${name}`;
  const head = { apiVersion: 'example.com/v1', kind: `Null${index}`, metadata: { name } };
  const part = { field: value };
  const parts = { spec: part, status: part, top: value };
  const whole = { ...head, ...parts };
  const by = '?fieldManager=test';
  const [merge, apply] = ['application/merge-patch+json', 'application/apply-patch+yaml'];
  const operations = [{ op: 'add', path: '/spec', value: part }];
  const seen: Record<string, unknown> = {};
  const step = async (what: string, ...request: Parameters<Oracle['send']>) => {
    seen[what] = compared(await sendServed(server, ...request));
  };
  const version = async () => {
    const { body } = await sendServed(server, 'GET', path);
    return (body as { metadata: { resourceVersion: string } }).metadata.resourceVersion;
  };
  await step('create', 'POST', collection + by, whole);
  await step('apply over it', 'PATCH', `${path}?fieldManager=other&force=true`, whole, apply);
  await step('remove', 'DELETE', path);
  await step('create without', 'POST', collection + by, head);
  await step('update without a version', 'PUT', path + by, whole);
  const versioned = async () => ({ ...whole, metadata: { name, resourceVersion: await version() } });
  await step('update', 'PUT', path + by, await versioned());
  const labelled = { name, labels: { a: 'b' }, resourceVersion: await version() };
  await step('update of the status', 'PUT', `${path}/status${by}`, { ...whole, metadata: labelled });
  await step('patch', 'PATCH', path + by, { spec: part, top: value }, merge);
  await step('patch of the status', 'PATCH', `${path}/status${by}`, { status: part }, merge);
  await step('patch by operations', 'PATCH', path + by, operations, 'application/json-patch+json');
  await step('read', 'GET', path);
  await step('remove again', 'DELETE', path);
  await step('apply', 'PATCH', path + by, whole, apply);
  await step('apply of the status', 'PATCH', `${path}/status${by}`, whole, apply);
  await step('remove at last', 'DELETE', path);
  return seen;
}

/** Returns what both servers must answer alike: status, message, and the object with the owners of its fields. */
function compared({ status, body }: ApiAnswer): unknown {
  const {
    kind,
    message,
    metadata,
    spec,
    top,
    status: state,
  } = body as {
    readonly kind: string;
    readonly message?: string;
    readonly metadata: {
      readonly managedFields?: { manager: string; fieldsV1: unknown }[];
      readonly labels?: unknown;
    };
    readonly [field: string]: unknown;
  };
  if (kind === 'Status') return { code: status, problem: wordsOfError(message) };
  // Entries of one operation are ordered by time, and two requests may be in the same second.
  const owners = metadata.managedFields
    ?.map(({ manager, fieldsV1 }) => ({ manager, fieldsV1 }))
    .sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  return { code: status, labels: metadata.labels, spec, status: state, top, owners };
}

describe('null in custom objects with', { skip, timeout: 240_000 }, () => {
  let real: Oracle;
  let ours: Oracle;
  before(async () => {
    [real, ours] = await Promise.all([startOracle(assets ?? ''), startOurServer()]);
    // All at once: kube-apiserver serves a kind seconds after its definition.
    for (const server of [real, ours])
      await Promise.all(schemas.map(([, schema], index) => define(server, index, schema)));
  });
  after(async () => {
    await real?.stop();
    await ours?.stop();
  });
  for (const [index, [what]] of schemas.entries())
    test(what, async () => {
      // Side by side: each value has objects of its own.
      await Promise.all(
        values.map(async (value, number) => {
          const words = JSON.stringify(value);
          if (EXCEPT[what]?.has(words)) return;
          const [expected, found] = await Promise.all([
            observe(real, index, number, value),
            observe(ours, index, number, value),
          ]);
          for (const [step, answer] of Object.entries(expected))
            assert.deepEqual(found[step], answer, `${words}, ${step}`);
        }),
      );
    });
});
