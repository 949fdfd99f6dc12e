import assert from 'node:assert/strict';
import { test } from 'node:test';
import { removalOf } from './foreign-chains.ts';

const CHAINS = new Set(['GONE', 'GONE-TOO']);

const ROWS: readonly [what: string, line: string, deleted: boolean][] = [
  ['a jump to the chain', '-A INPUT -p tcp -j GONE', true],
  ['a jump with a comment', '-A INPUT -m comment --comment "some \\"text\\"" -j GONE', true],
  ['a goto', '-A OTHERS -g GONE-TOO', true],
  ['a jump whose options follow', '-A OTHERS -j GONE -m comment --comment "x"', true],
  ['a jump to a chain with a longer name', '-A INPUT -j GONE-NOT', false],
  ['a comment that looks like a jump', '-A INPUT -m comment --comment "x -j GONE y" -j OTHERS', false],
  ['a comment that hides a jump', '-A INPUT -m comment --comment "x -j OTHERS y" -j GONE', true],
  ['a jump from a chain that is removed too', '-A GONE -j GONE-TOO', false],
  ['a chain', ':OTHERS - [0:0]', false],
];

for (const [what, line, deleted] of ROWS) {
  test(`${what} is ${deleted ? 'removed' : 'kept'}`, () => {
    const saved = `*filter\n:INPUT ACCEPT [0:0]\n${line}\nCOMMIT\n`;
    assert.deepEqual(removalOf(saved, 'filter', CHAINS).split('\n'), [
      '*filter',
      ':GONE - [0:0]',
      ':GONE-TOO - [0:0]',
      ...(deleted ? [line.replace('-A', '-D')] : []),
      '-X GONE',
      '-X GONE-TOO',
      'COMMIT',
      '',
    ]);
  });
}
