import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KINDS } from './kinds.ts';
import type { ApiObject, JsonObject } from './object.ts';
import { validateMetadata } from './validation/metadata.ts';
import { validateEphemeralContainers } from './validation/pod-parts.ts';
import { repeats } from './validation/repeats.ts';
import { onlyAddsTolerations } from './validation/scheduling.ts';
import { removeRepeatedOwners } from './write-rules.ts';

/** One request may have lists of a hundred thousand items: what judges them reads each item a constant number of times. */

interface Counted {
  /** Returns a list of objects, or of texts, whose reads are counted. */
  objects(make: (i: number) => JsonObject): JsonObject[];
  texts(make: (i: number) => string): string[];
}

/** Returns how often items are read when there are `count` of them. */
function readsOf(count: number, run: (counted: Counted) => void): number {
  let reads = 0;
  const list = <T>(make: (i: number) => T): T[] =>
    new Proxy(
      Array.from({ length: count }, (_, i) => make(i)),
      {
        get(target, name, self) {
          if (typeof name === 'string' && /^[0-9]+$/.test(name)) reads++;
          return Reflect.get(target, name, self);
        },
      },
    );
  const object = (value: JsonObject): JsonObject =>
    new Proxy(value, {
      get(target, name, self) {
        reads++;
        return Reflect.get(target, name, self);
      },
    });
  run({ objects: (make) => list((i) => object(make(i))), texts: list });
  return reads;
}

const object = (metadata: object, spec: object = {}): ApiObject =>
  ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'x', ...metadata },
    spec,
  }) as ApiObject;
const pods = KINDS.find(({ kind }) => kind === 'Pod') ?? assert.fail('no Pod');

const rows: [what: string, run: (counted: Counted) => void][] = [
  [
    'owners',
    ({ objects }) =>
      removeRepeatedOwners(object({ ownerReferences: objects((i) => ({ kind: 'Pod', uid: `u${i}` })) })),
  ],
  [
    'finalizers of an object that is being deleted',
    ({ texts }) => {
      const of = (letter: string) => object({ finalizers: texts((i) => `a.b/${letter}${i}`) });
      const before = of('a');
      before.metadata.deletionTimestamp = '2026-01-01T00:00:00Z';
      validateMetadata(pods, of('b'), before);
    },
  ],
  [
    'tolerations',
    ({ objects }) => {
      const of = () => objects((i) => ({ key: `k${i}`, operator: 'Exists' }));
      assert.equal(onlyAddsTolerations(of(), of()), true);
    },
  ],
  [
    'ephemeral containers',
    ({ objects }) => {
      const of = () => object({}, { ephemeralContainers: objects((i) => ({ name: `e${i}`, image: 'i' })) });
      validateEphemeralContainers(of(), of());
    },
  ],
];
for (const [what, run] of rows) {
  test(`twice as many ${what} are read twice as often`, () => {
    const [once, twice] = [readsOf(200, run), readsOf(400, run)];
    assert.ok(once >= 200 && twice < 2.5 * once, `${once} reads of 200 items, ${twice} of 400`);
  });
}

test('an object that names an owner twice has it once, with a warning', () => {
  const owners = [{ uid: 'a' }, { uid: 'b' }, { uid: 'a' }];
  const one = object({ ownerReferences: owners });
  assert.match(removeRepeatedOwners(one) ?? '', /duplicate UID\(s\) observed: a$/);
  assert.deepEqual(one.metadata.ownerReferences, owners.slice(0, 2));
});

test('repeats are the places of later values', () => {
  assert.deepEqual([...repeats(['a', 'b', 'a', 'a', 'c', 'b'])], [2, 3, 5]);
});
