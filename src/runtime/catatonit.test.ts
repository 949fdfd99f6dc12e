import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canPause } from './catatonit.ts';

const usage = (letters: string) => `usage: catatonit [-${letters}] [--] <progname> [<arguments>...]\n`;

const ROWS: readonly (readonly [version: string, help: string, can: boolean])[] = [
  ['0.1.5 (Debian 11)', `${usage('ghLV')}\n  -V, --version   Print version information.\n`, false],
  ['0.1.7 (Debian 12)', `${usage('ghLPV')}\n  -P              Run in pause mode.\n`, true],
  ['a later one with other words', '  -P, --pause  Run in pause mode.\n', true],
  ['no help', '', false],
];

for (const [version, help, can] of ROWS)
  test(`catatonit ${version} can ${can ? '' : 'not '}pause`, () => assert.equal(canPause(help), can));
