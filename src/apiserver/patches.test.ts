import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyJsonPatch, applyMergePatch } from './json-patch.ts';
import { KINDS } from './kinds.ts';
import type { JsonObject } from './object.ts';
import { createSchemaService } from './schema/service.ts';
import { applyStrategicPatch } from './strategic-patch.ts';

const schema = createSchemaService({ kinds: KINDS });
const podSchema = schema.patchSchema('v1', 'Pod');
const serviceSchema = schema.patchSchema('v1', 'Service');

interface Row {
  readonly what: string;
  readonly document: JsonObject;
  readonly patch: unknown;
  readonly result: JsonObject;
}

const strategic: Row[] = [
  {
    what: 'fields merge, null removes',
    document: { metadata: { labels: { a: '1', b: '2' } } },
    patch: { metadata: { labels: { b: null, c: '3' } } },
    result: { metadata: { labels: { a: '1', c: '3' } } },
  },
  {
    what: 'containers merge by name',
    document: {
      spec: {
        containers: [
          { name: 'a', image: '1' },
          { name: 'b', image: '1' },
        ],
      },
    },
    patch: {
      spec: {
        containers: [
          { name: 'b', image: '2' },
          { name: 'c', image: '3' },
        ],
      },
    },
    result: {
      spec: {
        containers: [
          { name: 'a', image: '1' },
          { name: 'b', image: '2' },
          { name: 'c', image: '3' },
        ],
      },
    },
  },
  {
    what: '$patch: delete removes an item',
    document: { spec: { containers: [{ name: 'a' }, { name: 'b' }] } },
    patch: { spec: { containers: [{ name: 'a', $patch: 'delete' }] } },
    result: { spec: { containers: [{ name: 'b' }] } },
  },
  {
    what: '$patch: replace replaces a list',
    document: { spec: { containers: [{ name: 'a' }, { name: 'b' }] } },
    patch: { spec: { containers: [{ name: 'c' }, { $patch: 'replace' }] } },
    result: { spec: { containers: [{ name: 'c' }] } },
  },
  {
    what: '$patch: replace replaces an object',
    document: { metadata: { labels: { a: '1' } } },
    patch: { metadata: { labels: { $patch: 'replace', b: '2' } } },
    result: { metadata: { labels: { b: '2' } } },
  },
  {
    what: '$setElementOrder orders the list, other items keep their neighbours',
    document: { spec: { containers: [{ name: 'a' }, { name: 'x' }] } },
    patch: {
      spec: { '$setElementOrder/containers': [{ name: 'b' }, { name: 'a' }], containers: [{ name: 'b' }] },
    },
    result: { spec: { containers: [{ name: 'b' }, { name: 'a' }, { name: 'x' }] } },
  },
  {
    what: 'a new item comes before those that the patch does not name',
    document: { spec: { containers: [{ name: 'a' }, { name: 'b' }] } },
    patch: { spec: { containers: [{ name: 'x' }] } },
    result: { spec: { containers: [{ name: 'x' }, { name: 'a' }, { name: 'b' }] } },
  },
  {
    what: '$deleteFromPrimitiveList removes values',
    document: { metadata: { finalizers: ['a', 'b'] } },
    patch: { metadata: { '$deleteFromPrimitiveList/finalizers': ['a'], finalizers: ['c'] } },
    result: { metadata: { finalizers: ['b', 'c'] } },
  },
  {
    what: '$retainKeys drops the other volume sources',
    document: { spec: { volumes: [{ name: 'v', emptyDir: {} }] } },
    patch: {
      spec: { volumes: [{ name: 'v', $retainKeys: ['name', 'hostPath'], hostPath: { path: '/x' } }] },
    },
    result: { spec: { volumes: [{ name: 'v', hostPath: { path: '/x' } }] } },
  },
  {
    what: 'lists without a merge key are replaced',
    document: { spec: { containers: [{ name: 'a', args: ['1', '2'] }] } },
    patch: { spec: { containers: [{ name: 'a', args: ['3'] }] } },
    result: { spec: { containers: [{ name: 'a', args: ['3'] }] } },
  },
];
for (const { what, document, patch, result } of strategic) {
  test(`strategic merge: ${what}`, () => {
    const before = structuredClone(document);
    assert.deepEqual(applyStrategicPatch(document, patch, podSchema), result);
    assert.deepEqual(document, before, 'the document itself stays');
  });
}

const KINDS_OF_LARGE: [what: string, patch: (items: JsonObject[], names: string[]) => JsonObject][] = [
  ['all items in another order', (items) => ({ spec: { containers: items.toReversed() } })],
  [
    'new items',
    (items) => ({ spec: { containers: items.map((item) => ({ name: `new-${item['name']}` })) } }),
  ],
  [
    'items to delete',
    (items) => ({ spec: { containers: items.map((item) => Object.assign(item, { $patch: 'delete' })) } }),
  ],
  ['an order', (items) => ({ spec: { '$setElementOrder/containers': items.toReversed() } })],
  ['primitive values', (_, names) => ({ metadata: { finalizers: names } })],
  [
    'primitive values to delete',
    (_, names) => ({ metadata: { '$deleteFromPrimitiveList/finalizers': names } }),
  ],
];
for (const [what, patchOf] of KINDS_OF_LARGE) {
  test(`strategic merge: twice as many ${what} are read twice as often`, () => {
    const readsOf = (count: number): number => {
      let reads = 0;
      const item = (i: number) =>
        Object.defineProperty({}, 'name', {
          enumerable: true,
          get() {
            reads++;
            return `c${i}`;
          },
        });
      const list = <T>(make: (i: number) => T) =>
        new Proxy(
          Array.from({ length: count }, (_, i) => make(i)),
          {
            get(target, name, self) {
              if (typeof name === 'string' && /^[0-9]+$/.test(name)) reads++;
              return Reflect.get(target, name, self);
            },
          },
        );
      const document = { metadata: { finalizers: list((i) => `f${i}`) }, spec: { containers: list(item) } };
      const patch = patchOf(
        list(item) as JsonObject[],
        list((i) => `f${count - i}`),
      );
      applyStrategicPatch(document as JsonObject, patch, podSchema);
      return reads;
    };
    const [once, twice] = [readsOf(400), readsOf(800)];
    assert.ok(twice < 2.5 * once, `${once} reads of 400 items, ${twice} of 800`);
  });
}

test('strategic merge: a Service’s ports merge by port', () => {
  const ports = [
    { port: 80, name: 'a' },
    { port: 81, name: 'b' },
  ];
  const patched = applyStrategicPatch(
    { spec: { ports } },
    { spec: { ports: [{ port: 81, name: 'c' }] } },
    serviceSchema,
  );
  assert.deepEqual(patched, {
    spec: {
      ports: [
        { port: 80, name: 'a' },
        { port: 81, name: 'c' },
      ],
    },
  });
});

test('strategic merge: $patch: delete removes all items of its key', () => {
  const ports = [{ port: 53, protocol: 'UDP' }, { port: 53, protocol: 'TCP' }, { port: 80 }];
  const patch = { spec: { ports: [{ $patch: 'delete', port: 53 }] } };
  assert.deepEqual(applyStrategicPatch({ spec: { ports } }, patch, serviceSchema), {
    spec: { ports: [{ port: 80 }] },
  });
});

for (const [what, order, containers] of [
  ['in another order', [{ name: 'a' }, { name: 'b' }], [{ name: 'b' }, { name: 'a' }]],
  ['that it does not name', [{ name: 'a' }], [{ name: 'b' }]],
  ['and is not a list', 5, []],
] as const) {
  test(`strategic merge: $setElementOrder with items ${what} is refused`, () => {
    const patch = { spec: { '$setElementOrder/containers': order, containers } };
    const document = { spec: { containers: [{ name: 'a' }] } };
    assert.throws(() => applyStrategicPatch(document, patch, podSchema), { code: 500 });
  });
}

test('strategic merge: an item without its merge key is refused', () => {
  assert.throws(
    () =>
      applyStrategicPatch(
        { spec: { containers: [] } },
        { spec: { containers: [{ image: 'x' }] } },
        podSchema,
      ),
    /does not contain declared merge key: name/,
  );
});

const json: Row[] = [
  {
    what: 'add',
    document: { a: [1] },
    patch: [{ op: 'add', path: '/a/-', value: 2 }],
    result: { a: [1, 2] },
  },
  {
    what: 'add at an index',
    document: { a: [1, 3] },
    patch: [{ op: 'add', path: '/a/1', value: 2 }],
    result: { a: [1, 2, 3] },
  },
  {
    what: 'replace',
    document: { a: { b: 1 } },
    patch: [{ op: 'replace', path: '/a/b', value: 2 }],
    result: { a: { b: 2 } },
  },
  {
    what: 'replace in a list',
    document: { a: [1, 2, 3] },
    patch: [{ op: 'replace', path: '/a/1', value: 9 }],
    result: { a: [1, 9, 3] },
  },
  { what: 'remove', document: { a: 1, b: 2 }, patch: [{ op: 'remove', path: '/a' }], result: { b: 2 } },
  { what: 'move', document: { a: 1 }, patch: [{ op: 'move', from: '/a', path: '/b' }], result: { b: 1 } },
  {
    what: 'copy',
    document: { a: { b: 1 } },
    patch: [{ op: 'copy', from: '/a', path: '/c' }],
    result: { a: { b: 1 }, c: { b: 1 } },
  },
  {
    what: 'escapes',
    document: { 'a/b': { 'c~d': 1 } },
    patch: [{ op: 'replace', path: '/a~1b/c~0d', value: 2 }],
    result: { 'a/b': { 'c~d': 2 } },
  },
];
for (const { what, document, patch, result } of json) {
  test(`JSON patch: ${what}`, () => assert.deepEqual(applyJsonPatch(document, patch), result));
}
for (const patch of [
  [{ op: 'test', path: '/a', value: 2 }],
  [{ op: 'remove', path: '/none' }],
  [{ op: 'replace', path: '/none', value: 1 }],
]) {
  test(`JSON patch: ${JSON.stringify(patch[0])} does not apply`, () => {
    assert.throws(() => applyJsonPatch({ a: 1 }, patch), { code: 422 });
  });
}

test('merge patch: objects merge, null removes, lists are replaced', () => {
  assert.deepEqual(applyMergePatch({ a: { b: 1, c: 2 }, d: [1] }, { a: { b: null }, d: [2, 3] }), {
    a: { c: 2 },
    d: [2, 3],
  });
});

test('JSON patch: 40 copies, each doubling, are refused', () => {
  const copies = Array.from({ length: 40 }, (_, i) => ({ op: 'copy', from: '', path: `/a${i}` }));
  assert.throws(() => applyJsonPatch({ text: 'x'.repeat(100) }, copies), /copy operations may copy/);
});

test('JSON patch: more than 10,000 operations are refused', () => {
  const operations = Array.from({ length: 10_001 }, () => ({ op: 'test', path: '/a', value: 1 }));
  assert.throws(() => applyJsonPatch({ a: 1 }, operations), /maximum operations/);
});
