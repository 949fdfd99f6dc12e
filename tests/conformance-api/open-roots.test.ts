import { strict as assert } from 'node:assert';
import { after, before, describe, test } from 'node:test';
import { defineKind, sendServed } from './custom-kind.ts';
import { type ApiAnswer, type Oracle, startOracle } from './oracle.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

const PRESERVE = { 'x-kubernetes-preserve-unknown-fields': true };
const spec = { type: 'object', properties: { size: { type: 'integer' } } };
const roots: readonly [what: string, root: object][] = [
  ['preserves unknown fields, and has no properties', { type: 'object', ...PRESERVE }],
  ['preserves unknown fields beside properties', { type: 'object', ...PRESERVE, properties: { spec } }],
  ['has no properties', { type: 'object' }],
  [
    'has a spec that preserves unknown fields',
    { type: 'object', properties: { spec: { ...spec, ...PRESERVE } } },
  ],
];
const objects: readonly [what: string, object: object][] = [
  ['a spec', { spec: { size: 1, more: { a: [1, { b: 2 }] } } }],
  ['other fields', { status: { phase: 'x' }, data: { k: 'v' }, list: [{ name: 'a' }, { name: 'a' }] }],
  ['labels and annotations', { metadata: { labels: { a: 'b' }, annotations: { c: 'd' } }, data: { k: 'w' } }],
  ['unknown metadata', { metadata: { odd: 1 }, spec: { size: 2 } }],
  ['an empty map and a null', { spec: { size: null, map: {} }, data: null }],
];

/** Applies each object by a manager, then another value of the same fields by a second one, without and with force. */
async function observe(server: Oracle, index: number, root: object): Promise<ApiAnswer[]> {
  await defineKind(server, { singular: `root${index}`, kind: `Root${index}`, schema: root });
  const answers: ApiAnswer[] = [];
  for (const [number, [, object]] of objects.entries()) {
    const name = `one-${number}`;
    const body = (change: object) => {
      const { metadata, ...rest } = { metadata: {}, ...object };
      return {
        apiVersion: 'example.com/v1',
        kind: `Root${index}`,
        metadata: { name, ...metadata },
        ...rest,
        ...change,
      };
    };
    for (const [query, change] of [
      ['fieldManager=first', {}],
      ['fieldManager=second', { spec: { size: 9 }, data: { k: 'z' } }],
      ['fieldManager=second&force=true', { spec: { size: 9 }, data: { k: 'z' } }],
      ['fieldManager=first', {}],
    ] as const)
      answers.push(await apply(server, `/apis/example.com/v1/root${index}s/${name}?${query}`, body(change)));
  }
  return answers;
}

const apply = (server: Oracle, path: string, body: object): Promise<ApiAnswer> =>
  sendServed(server, 'PATCH', path, body, 'application/apply-patch+yaml');

/** Returns what both servers must answer alike: status, message, and the object with the owners of its fields. */
function compared({ status, body }: ApiAnswer): unknown {
  const { kind, message, metadata, ...rest } = body as {
    readonly kind: string;
    readonly message?: string;
    readonly metadata: Record<string, unknown> & { managedFields?: { manager: string; fieldsV1: unknown }[] };
  };
  // Of several undeclared fields, kube-apiserver names the first one of a random order.
  if (kind === 'Status') return { status, message: message?.replace(/(Kind=\w+\): ).*/s, '$1') };
  const owners = metadata.managedFields?.map(({ manager, fieldsV1 }) => ({ manager, fieldsV1 }));
  const { labels, annotations } = metadata;
  return { status, ...rest, labels, annotations, owners };
}

describe('server-side apply of custom objects whose root', { skip, timeout: 120_000 }, () => {
  let real: Oracle;
  let ours: Oracle;
  before(async () => {
    [real, ours] = await Promise.all([startOracle(assets ?? ''), startOurServer()]);
  });
  after(async () => {
    await real?.stop();
    await ours?.stop();
  });
  for (const [index, [what, root]] of roots.entries())
    test(what, async () => {
      const [expected, found] = await Promise.all([observe(real, index, root), observe(ours, index, root)]);
      for (const [at, answer] of expected.entries()) {
        const step = `${objects[Math.floor(at / 4)]?.[0]}, request ${(at % 4) + 1}`;
        const own = found[at];
        assert.ok(own);
        assert.deepEqual(compared(own), compared(answer), step);
      }
    });
});
