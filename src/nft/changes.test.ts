import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ChangeSink, changeGroup } from './changes.ts';
import { type Elements, elements, group } from './spec.ts';

/** A pod that very many rules select is in as many sets. */
const SETS = 3000;
const SHAPE = { keyWords: 1, range: 'none', dataWords: 0, stride: 1 } as const;

test('a change of a group in thousands of sets reads each list a few times', () => {
  let reads = 0;
  const counted = (one: Elements): Elements =>
    new Proxy(one, {
      get(target, key) {
        if (key === 'set') reads++;
        return Reflect.get(target, key) as unknown;
      },
    });
  const lists = (from: number) =>
    Array.from({ length: SETS }, (_, i) => counted(elements(`set-${from + i}`, Uint32Array.of(1))));
  const changes: string[] = [];
  const sink: ChangeSink = {
    add: ({ set }) => changes.push(`add ${set}`),
    remove: ({ set }) => changes.push(`remove ${set}`),
  };
  changeGroup(group(lists(0)), group(lists(1)), () => SHAPE, sink);
  assert.deepEqual(changes, ['remove set-0', `add set-${SETS}`]);
  assert.ok(reads < 20 * SETS, `${reads} reads`);
});
