import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { forward, httpMap, listener, row, table } from '../testing/maps.ts';
import { hex, literal, mapKey, path, word } from './quote.ts';
import {
  HAPROXY,
  type RunningProxy,
  type Seen,
  sendRaw,
  startMirror,
  startProxy,
} from './testing/running-proxy.ts';

/** Random texts in the values of one configuration; a larger number: FAIRLEAD_GATEWAY_TEXTS. */
const TEXTS = Number(process.env['FAIRLEAD_GATEWAY_TEXTS'] ?? 10_000);
const PIECES = [
  ...[
    '"',
    "'",
    '\\',
    '%',
    '$',
    '{',
    '}',
    '[',
    ']',
    '#',
    ' ',
    '  ',
    ',',
    ';',
    '(',
    ')',
    '-',
    '--',
    '|',
    '&',
    '~',
  ],
  ...[
    '%[src]',
    '${HOME}',
    '$HOME',
    '"\n',
    '%%',
    '\\x41',
    'b64dec',
    'http-request deny',
    '!',
    '<',
    '>',
    '@',
    'ä',
    'a',
    '1',
  ],
];

describe('quoting', () => {
  test('refuses control characters, which end a line', () => {
    for (const text of ['a\nb', 'a\rb', 'a\0b', 'a\tb', '\x7f'])
      for (const quote of [word, literal, hex, path]) assert.throws(() => quote(text), /control character/);
  });

  test('a key of a map has no space', () => {
    assert.equal(mapKey('1/a b'), null);
    assert.equal(mapKey("1/a'b"), "1/a'b");
  });
});

describe('quoted texts in HAProxy', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
  });
  after(async () => {
    await proxy?.stop();
    await mirror?.close();
  });

  test('arrive as they are, at their place and nowhere else', async () => {
    let state = 7;
    const next = (below: number) => {
      state = (state * 1_103_515_245 + 12_345) & 0x7fffffff;
      return Math.floor((state / 0x80000000) * below);
    };
    const random = () =>
      Array.from({ length: 1 + next(6) }, () => PIECES[next(PIECES.length)] ?? '')
        .join('')
        .replaceAll('\n', '')
        .trim();
    const texts = Array.from({ length: TEXTS }, random);
    // HAProxy keeps 1024 bytes for what rules add to a request.
    const perRow = 10;
    const rows = Array.from({ length: Math.ceil(texts.length / perRow) }, (_, i) => {
      const set = texts.slice(i * perRow, (i + 1) * perRow).map((value, j) => ({ name: `x-${j}`, value }));
      return row(
        `r${i}`,
        { kind: 'exact', path: `/${i}` },
        forward('b/one:80', { request: { set, add: [], remove: [] } }),
        { headers: [{ name: 'x-match', kind: 'exact', value: texts[i * perRow] || 'x' }] },
      );
    });
    const rendering = proxy.render(httpMap([listener('', [table('', rows)])]));
    assert.deepEqual(rendering.refused, []);
    assert.equal(await proxy.replace(rendering, () => [{ address: '127.0.0.1', port: mirror.port }]), null);
    for (let i = 0; i < rows.length; i++) {
      const match = Buffer.from(texts[i * perRow] || 'x').toString('latin1');
      const answer = await sendRaw(
        proxy.port,
        `GET /${i} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Match: ${match}\r\n\r\n`,
      );
      assert.equal(answer.status, 200, `${i}: ${JSON.stringify(texts[i * perRow])}`);
      const { headers } = JSON.parse(Buffer.from(answer.body, 'latin1').toString()) as Seen;
      const known = new Map(headers.map(({ name, value }) => [name.toLowerCase(), value]));
      for (let j = 0; j < perRow; j++) {
        const expected = texts[i * perRow + j];
        if (expected === undefined) continue;
        assert.equal(Buffer.from(known.get(`x-${j}`) ?? '', 'latin1').toString(), expected);
      }
    }
  });
});
