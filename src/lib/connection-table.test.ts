import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createConnectionTable } from './connection-table.ts';

const LIMITS = {
  maxUnknownPerSource: 2,
  maxUnknown: 3,
  maxResets: 2,
  unknownIdleMs: 30,
  idleMs: 90,
};

function opener() {
  const table = createConnectionTable(LIMITS);
  const ended: string[] = [];
  const open = (name: string, address = '10.0.0.1', now = 0) =>
    table.open(address, now, () => ended.push(name));
  return { table, ended, open };
}

test('the oldest connection without credentials of a source makes room for its next one', () => {
  const { ended, open } = opener();
  for (const name of ['a', 'b', 'c', 'd']) open(name);
  assert.deepEqual(ended, ['a', 'b']);
});

test('all sources together have a limit, too', () => {
  const { ended, open } = opener();
  for (const [i, name] of ['a', 'b', 'c', 'd'].entries()) open(name, `10.0.0.${i}`);
  assert.deepEqual(ended, ['a']);
});

test('connections with credentials are neither counted nor ended', () => {
  const { table, ended, open } = opener();
  for (const name of ['a', 'b', 'c', 'd', 'e']) table.know(open(name));
  assert.deepEqual(ended, []);
});

const SOURCES: readonly [first: string, second: string, isSame: boolean][] = [
  ['10.0.0.1', '::ffff:10.0.0.1', true],
  ['10.0.0.1', '10.0.0.2', false],
  ['2001:db8::1', '2001:db8::ffff:2', true],
  ['2001:db8:0:0:1:2:3:4', '2001:db8::', true],
  ['2001:db8:0:1::1', '2001:db8::1', false],
  ['fe80::1%eth0', 'fe80::2', true],
];
for (const [first, second, isSame] of SOURCES) {
  test(`${first} and ${second} are ${isSame ? 'one source' : 'two sources'}`, () => {
    const { ended, open } = opener();
    for (const [name, address] of [
      ['a', first],
      ['b', second],
      ['c', second],
    ] as const)
      open(name, address);
    assert.deepEqual(ended, isSame ? ['a'] : []);
  });
}

test('a client without credentials may reset a few streams', () => {
  const { table, ended, open } = opener();
  const unknown = open('unknown');
  const known = open('known');
  table.know(known);
  assert.deepEqual(
    [1, 2, 3].map(() => table.reset(unknown)),
    [false, false, true],
  );
  assert.deepEqual(
    [1, 2, 3].map(() => table.reset(known)),
    [false, false, false],
  );
  assert.deepEqual(ended, ['unknown']);
});

test('connections without a request are ended, later those with credentials; those with an open request stay', () => {
  const { table, ended, open } = opener();
  open('unknown');
  table.know(open('known'));
  const busy = open('busy', '10.0.0.2');
  busy.requests = 1;
  table.sweep(30);
  assert.deepEqual(ended, []);
  table.sweep(31);
  assert.deepEqual(ended, ['unknown']);
  table.sweep(91);
  assert.deepEqual(ended, ['unknown', 'unknown', 'known']);
});
