import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatTable } from './table.ts';

const TABLE = [
  ['SERVICE', 'TYPE', 'PODS', 'FRONTENDS'],
  ['shop/web', 'NodePort', '2', '10.96.0.1:80/TCP node:30080/TCP'],
  ['none', 'ClusterIP', '0', '-'],
];
const DROPPED = ['TYPE', 'PODS', 'FRONTENDS'];

describe('a table', () => {
  const rows: readonly [what: string, columns: number | null, lines: readonly string[]][] = [
    [
      'in a pipe is as wide as needed',
      null,
      [
        'SERVICE   TYPE       PODS  FRONTENDS',
        'shop/web  NodePort   2     10.96.0.1:80/TCP node:30080/TCP',
        'none      ClusterIP  0     -',
      ],
    ],
    [
      'in a wide terminal has one line for each row',
      80,
      [
        'SERVICE   TYPE       PODS  FRONTENDS',
        'shop/web  NodePort   2     10.96.0.1:80/TCP node:30080/TCP',
        'none      ClusterIP  0     -',
      ],
    ],
    [
      'wraps its last column at words',
      55,
      [
        'SERVICE   TYPE       PODS  FRONTENDS',
        'shop/web  NodePort   2     10.96.0.1:80/TCP',
        '                           node:30080/TCP',
        'none      ClusterIP  0     -',
      ],
    ],
    [
      'leaves out the least important column where that is not enough',
      42,
      [
        'SERVICE   PODS  FRONTENDS',
        'shop/web  2     10.96.0.1:80/TCP',
        '                node:30080/TCP',
        'none      0     -',
      ],
    ],
    [
      'leaves out more columns, as many as necessary',
      34,
      ['SERVICE   FRONTENDS', 'shop/web  10.96.0.1:80/TCP', '          node:30080/TCP', 'none      -'],
    ],
    ['leaves out its last column too', 20, ['SERVICE', 'shop/web', 'none']],
    ['shortens its first column at last', 6, ['SER…CE', 'sho…eb', 'none']],
  ];
  for (const [what, columns, lines] of rows) {
    test(what, () => {
      assert.equal(formatTable(TABLE, columns, DROPPED), `${lines.join('\n')}\n`);
      assert.ok(lines.every((line) => line.length <= (columns ?? 200)));
    });
  }

  test('without columns that may be left out fits too', () => {
    const long = 'a-namespace-with-a-long-name/a-service-with-an-even-longer-name-that-ends-here';
    const text = formatTable([[long, '1', '100.0 %']], 40);
    assert.equal(text, 'a-namespace-wi…hat-ends-here  1  100.0 %\n');
  });
});
