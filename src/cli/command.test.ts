import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatTable } from './command.ts';

const TABLE = [
  ['SERVICE', 'FRONTENDS'],
  ['shop/web', '10.96.0.1:80/TCP node:30080/TCP'],
  ['none', '-'],
];
const ROWS = [
  ['not a terminal: one line for each row', null, ['shop/web  10.96.0.1:80/TCP node:30080/TCP']],
  ['a wide terminal', 80, ['shop/web  10.96.0.1:80/TCP node:30080/TCP']],
  [
    'a narrow terminal: the last column is wrapped at words',
    30,
    ['shop/web  10.96.0.1:80/TCP', '          node:30080/TCP'],
  ],
  [
    'words that are wider than the terminal are not split',
    12,
    ['shop/web  10.96.0.1:80/TCP', '          node:30080/TCP'],
  ],
] as const;
for (const [name, columns, lines] of ROWS) {
  test(name, () => {
    const expected = ['SERVICE   FRONTENDS', ...lines, 'none      -', ''].join('\n');
    assert.equal(formatTable(TABLE, columns), expected);
  });
}
