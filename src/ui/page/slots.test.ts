import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assignSlots } from './slots.ts';

const rows: readonly { name: string; lists: readonly string[][]; slots: Readonly<Record<string, number>> }[] =
  [
    { name: 'the first list is numbered in order', lists: [['a', 'b', 'c']], slots: { a: 0, b: 1, c: 2 } },
    {
      name: 'other members take the slots of those that left',
      lists: [
        ['a', 'b'],
        ['c', 'd'],
      ],
      slots: { c: 0, d: 1 },
    },
    {
      name: 'a member that stays keeps its slot',
      lists: [
        ['a', 'b', 'c'],
        ['x', 'c', 'y'],
      ],
      slots: { c: 2, x: 0, y: 1 },
    },
    {
      name: 'a list that grows again does not take the slot of a member that stayed',
      lists: [['a', 'b', 'c'], ['c'], ['d', 'e', 'c', 'f']],
      slots: { d: 0, e: 1, c: 2, f: 3 },
    },
  ];
for (const { name, lists, slots } of rows)
  test(name, () => {
    let assigned: ReadonlyMap<string, number> = new Map();
    for (const ids of lists) assigned = assignSlots(assigned, ids);
    assert.deepEqual(Object.fromEntries(assigned), slots);
  });
