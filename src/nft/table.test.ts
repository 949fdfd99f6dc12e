import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { manualClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { drop, goto, vmap } from './rule.ts';
import {
  type ElementGroup,
  elements,
  type Fragment,
  group,
  indexedElements,
  type TableSpec,
} from './spec.ts';
import { Table } from './table.ts';
import { createFakeConnection } from './testing/fake-connection.ts';

const words = (...values: number[]) => Uint32Array.from(values);

/** Two sets: ports with verdicts, and slots with deferred removal. */
const PICK: Fragment = {
  chains: [{ name: 'pick', rules: [[drop]] }],
  sets: [
    { name: 'slots', key: [DATA_TYPE.mark, DATA_TYPE.mark], data: [DATA_TYPE.mark], removal: 'deferred' },
  ],
  rules: [],
};

/** Returns a service: a verdict for its port, and slots with these data. */
function service(port: number, ...data: number[]): ElementGroup {
  const verdict = data.length > 0 ? { goto: 'pick' } : 'drop';
  const list = [elements('ports', words(port), { verdict })];
  if (data.length === 0) return group(list);
  const slots = { words: words(...data), at: 0, count: data.length };
  return group([indexedElements('slots', words(port), slots), ...list], [PICK]);
}

const spec = (groups: Readonly<Record<string, ElementGroup>>): TableSpec => ({
  family: 'ipv4',
  name: 'test',
  chains: [
    { name: 'start', rules: [[vmap('ports', 'meta.mark')], [goto('end')]] },
    { name: 'end', rules: [] },
  ],
  sets: [{ name: 'ports', key: [DATA_TYPE.mark], data: 'verdict' }],
  groups: new Map(Object.entries(groups)),
});

function open() {
  const connection = createFakeConnection();
  const clock = manualClock();
  const table = new Table({
    connection,
    family: 'ipv4',
    name: 'test',
    owned: false,
    clock,
    logger: silentLogger,
  });
  const change = async (groups: Readonly<Record<string, ElementGroup | null>>) => {
    await table.change(new Map(Object.entries(groups)));
    return connection.transactions.at(-1) ?? [];
  };
  return { connection, clock, table, change };
}

const hex = (...values: number[]) => Buffer.from(words(...values).buffer).toString('hex');
const slot = (port: number, index: number) => `slots ${hex(port, index)}`;

test('a table is written in the order in which its parts refer to each other', async () => {
  const { connection, table } = open();
  await table.replace(spec({ a: service(1, 10, 20), b: service(2) }));
  assert.deepEqual(connection.transactions, [
    [
      '+ table test',
      '+ set ports',
      '+ set slots',
      '+ chain start',
      '+ chain end',
      '+ chain pick',
      '+ rule start, 2 expressions',
      '+ rule start, 1 expressions',
      '+ rule pick, 1 expressions',
      `+ element ports ${hex(1)} : goto pick`,
      `+ element ports ${hex(2)} : drop`,
      `+ element ${slot(1, 0)} : ${hex(10)}`,
      `+ element ${slot(1, 1)} : ${hex(20)}`,
    ],
  ]);
});

test('a second replacement deletes and writes the table in the same transaction', async () => {
  const { connection, table } = open();
  await table.replace(spec({}));
  await table.replace(spec({}));
  assert.deepEqual(connection.transactions[1]?.slice(0, 2), ['- table test', '+ table test']);
});

const CHANGES: Readonly<
  Record<
    string,
    {
      readonly from: Readonly<Record<string, ElementGroup>>;
      readonly to: Readonly<Record<string, ElementGroup | null>>;
      readonly writes: readonly string[];
      /** The writes of the next transaction, or of a timer. */
      readonly later?: readonly string[];
    }
  >
> = {
  'nothing if a group is equal': { from: { a: service(1, 10) }, to: { a: service(1, 10) }, writes: [] },
  'one slot if an endpoint is inserted before others': {
    from: { a: service(1, 20, 30) },
    to: { a: service(1, 10, 20, 30) },
    writes: [`+ element ${slot(1, 2)} : ${hex(10)}`],
  },
  'one slot if an endpoint is replaced': {
    from: { a: service(1, 10, 20, 30) },
    to: { a: service(1, 10, 25, 30) },
    writes: [`- element ${slot(1, 1)}`, `+ element ${slot(1, 1)} : ${hex(25)}`],
  },
  'the last slot at once if an endpoint is removed, and another endpoint takes its slot': {
    from: { a: service(1, 10, 20, 30) },
    to: { a: service(1, 20, 30) },
    writes: [`- element ${slot(1, 0)}`, `- element ${slot(1, 2)}`, `+ element ${slot(1, 0)} : ${hex(30)}`],
  },
  'the slots later if no endpoint is left': {
    from: { a: service(1, 10, 20) },
    to: { a: service(1) },
    writes: [`- element ports ${hex(1)}`, `+ element ports ${hex(1)} : drop`],
    later: [`- element ${slot(1, 0)}`, `- element ${slot(1, 1)}`],
  },
  'chains and sets before the elements that need them': {
    from: { a: service(1) },
    to: { a: service(1, 10) },
    writes: [
      '+ set slots',
      '+ chain pick',
      '+ rule pick, 1 expressions',
      `- element ports ${hex(1)}`,
      `+ element ${slot(1, 0)} : ${hex(10)}`,
      `+ element ports ${hex(1)} : goto pick`,
    ],
  },
  'the verdict at once and the slots later if an owner is removed': {
    from: { a: service(1, 10), b: service(2, 20) },
    to: { a: null },
    writes: [`- element ports ${hex(1)}`],
    later: [`- element ${slot(1, 0)}`],
  },
  'the removal first if an element moves from one owner to another': {
    from: { a: service(1), b: service(2) },
    to: { b: service(1), a: null },
    writes: [`- element ports ${hex(2)}`, `- element ports ${hex(1)}`, `+ element ports ${hex(1)} : drop`],
  },
};

for (const [what, { from, to, writes, later }] of Object.entries(CHANGES)) {
  test(`a change writes ${what}`, async () => {
    const { connection, clock, table, change } = open();
    await table.replace(spec(from));
    const before = connection.transactions.length;
    await change(to);
    assert.deepEqual(connection.transactions.slice(before), [writes]);
    clock.advance(1000);
    assert.deepEqual(connection.transactions.slice(before + 1), later ? [later] : []);
  });
}

test('deferred removals come first in the next change', async () => {
  const { table, change } = open();
  await table.replace(spec({ a: service(1, 10, 20) }));
  await change({ a: null });
  assert.deepEqual(await change({ a: service(1, 30) }), [
    `- element ${slot(1, 0)}`,
    `- element ${slot(1, 1)}`,
    `+ element ${slot(1, 0)} : ${hex(30)}`,
    `+ element ports ${hex(1)} : goto pick`,
  ]);
});

test('the slots of a large pool are written in several messages', async () => {
  const { connection, table } = open();
  const data = Array.from({ length: 5000 }, (_, i) => i + 1);
  await table.replace(spec({ a: service(1, ...data) }));
  const slots = connection.transactions[0]?.filter((line) => line.startsWith('+ element slots'));
  assert.deepEqual(
    slots,
    data.map((value, i) => `+ element ${slot(1, i)} : ${hex(value)}`),
  );
});

test('a replacement is repeated while other programs commit, finally without checking the generation', async () => {
  const { connection, table } = open();
  const restart = new FairleadError('again', { op: 'test', code: 'ERESTART' });
  connection.failNext(...Array.from({ length: 7 }, () => restart));
  await table.replace(spec({}));
  assert.deepEqual(connection.generations, [1, 1, 1, 1, 1, 1, 1, null]);
  assert.equal(connection.transactions.length, 1);
});

test('an owner that the kernel rejects is left out and reported; the others are programmed', async () => {
  const { connection, table, change } = open();
  connection.refuse(`ports ${hex(2)}`);
  await table.replace(spec({ a: service(1), b: service(2), c: service(3) }));
  assert.deepEqual([...table.refused.keys()], ['b']);
  assert.match(table.refused.get('b')?.message ?? '', /for b: EEXIST/);
  const written = connection.transactions.at(-1) ?? [];
  assert.ok(written.includes(`+ element ports ${hex(1)} : drop`));
  assert.ok(written.includes(`+ element ports ${hex(3)} : drop`));
  assert.deepEqual(await change({ b: null }), []);
  assert.equal(table.refused.size, 0);
});

test('a change that the kernel rejects replaces the table', async () => {
  const { connection, table, change } = open();
  await table.replace(spec({ a: service(1) }));
  connection.failNext(new FairleadError('gone', { op: 'test', code: 'ENOENT' }));
  const written = await change({ b: service(2) });
  assert.deepEqual(written.slice(0, 2), ['- table test', '+ table test']);
  assert.ok(written.includes(`+ element ports ${hex(1)} : drop`));
  assert.ok(written.includes(`+ element ports ${hex(2)} : drop`));
});

test('a set that is too small for a change grows with its table', async () => {
  const { table, change } = open();
  await table.replace(spec({}));
  const many = Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`s${i}`, service(i)]));
  const written = await change(many);
  assert.equal(written[0], '- table test');
  assert.equal(written.filter((line) => line.startsWith('+ element')).length, 257);
});

test('a small set of a large table grows without a replacement of the table', async () => {
  const { table, change } = open();
  const ports = Array.from({ length: 20_000 }, (_, i) => [`s${i}`, service(i)] as const);
  await table.replace(spec(Object.fromEntries(ports)));
  const slots = Array.from({ length: 300 }, (_, i) => i);
  const written = await change({ many: service(20_000, ...slots) });
  assert.ok(!written.includes('- table test'));
  assert.equal(written.filter((line) => line.startsWith('+ element slots')).length, 300);
});

test('a table is removed in two transactions, the rules first', async () => {
  const { connection, table } = open();
  await table.replace(spec({}));
  await table.remove();
  assert.deepEqual(connection.transactions.slice(1), [['- rules'], ['- table test']]);
  await assert.rejects(table.change(new Map()), /changed before it was written/);
});
