import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crunWarning } from './crun-version.ts';

const OLD = (version: string) => new RegExp(`^crun ${version.replaceAll('.', '\\.')} is older than 1\\.31`);
const UNKNOWN = /^the version of crun cannot be read/;

for (const [answer, expected] of [
  ['crun version 1.8.1\ncommit: f8a096be\nrundir: /run/crun\n', OLD('1.8.1')],
  ['crun version 0.20.1-dirty\n', OLD('0.20.1-dirty')],
  ['crun version 1.30\n', OLD('1.30')],
  ['crun version 1.3\n', OLD('1.3')],
  ['crun version 1.31\n', null],
  ['crun version 1.31.1-dirty\n', null],
  ['crun version 1.100\n', null],
  ['crun version 2.0\n', null],
  ['runc version 1.2.0\n', UNKNOWN],
  ['crun version UNKNOWN\n', UNKNOWN],
  ['', UNKNOWN],
] as const) {
  test(`${JSON.stringify(answer)}: ${expected === null ? 'no warning' : 'a warning'}`, () => {
    const warning = crunWarning(answer);
    if (expected === null) assert.equal(warning, null);
    else assert.match(warning ?? '', expected);
  });
}

test('a version of any length is shown in one short line', () => {
  const warning = crunWarning(`crun version 1.2${'x'.repeat(10_000)}`) ?? '';
  assert.ok(warning.length < 300 && !warning.includes('\n'), warning);
});
