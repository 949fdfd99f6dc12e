import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readNamePattern } from '../kube/egress-names.ts';
import { indexNames, matchesNames, nameGroup, plainName } from './name-group.ts';

/** Each row: a pattern, names that match it, names that do not. */
const ROWS: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  [
    'kubernetes.io',
    ['kubernetes.io', 'KUBERNETES.io', 'kubernetes.io.'],
    ['www.kubernetes.io', 'my-kubernetes.io', 'kubernetes.io.evil.example', 'kubernetes', 'io', ''],
  ],
  [
    '*.kubernetes.io',
    [
      'www.kubernetes.io',
      'latest.blog.kubernetes.io',
      'WWW.Kubernetes.IO',
      '_x.kubernetes.io',
      '-.kubernetes.io',
    ],
    [
      'kubernetes.io',
      '.kubernetes.io',
      'my-kubernetes.io',
      'www.kubernetes.io.evil.example',
      'wikipedia.org',
    ],
  ],
  ['*.a_b.example', ['x.a_b.example'], ['x.a-b.example']],
  // Odd bytes are escaped in the text of a name: the label "x.kubernetes", a space, a byte above 127, a backslash, NUL.
  [
    '*.kubernetes.io',
    [],
    [
      'x\\.kubernetes.io',
      'a\\.b.kubernetes.io',
      'a\\032b.kubernetes.io',
      '\\228.kubernetes.io',
      'a\\\\.kubernetes.io',
      'a\\000.kubernetes.io',
      '*.kubernetes.io',
      'a..kubernetes.io',
      ' a.kubernetes.io',
      'a.kubernetes.io\n',
      '\u212aubernetes.io',
      'a.\u212aubernetes.io',
    ],
  ],
];

test('names match patterns by whole labels, without regard to case', () => {
  for (const [text, matching, others] of ROWS) {
    const pattern = readNamePattern(text);
    assert.ok(pattern !== null, text);
    const group = nameGroup([pattern]);
    const matches = (name: string) => {
      const plain = plainName(name);
      return plain !== null && matchesNames(group, plain);
    };
    for (const name of matching) assert.equal(matches(name), true, `${text}: ${name}`);
    for (const name of others) assert.equal(matches(name), false, `${text}: ${JSON.stringify(name)}`);
  }
});

test('patterns are those of DomainName', () => {
  const long = `${'a'.repeat(63)}.`;
  for (const [text, expected] of [
    ['Example.COM.', 'example.com'],
    ['*.Example.com', '*.example.com'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['a_b.example', 'a_b.example'],
    ['localhost', null],
    ['*', null],
    ['*.com', null],
    ['*.*.example.com', null],
    ['www.*.com', null],
    ['w*.example.com', null],
    ['example..com', null],
    ['.example.com', null],
    ['-a.example.com', null],
    ['bücher.example', null],
    ['example.com..', null],
    ['example.com\n', null],
    ['10.0.0.1/8', null],
    [`${'a'.repeat(64)}.example`, null],
    [`${long.repeat(3)}${'a'.repeat(61)}`, `${long.repeat(3)}${'a'.repeat(61)}`],
    [`${long.repeat(3)}${'a'.repeat(62)}`, null],
  ] as const) {
    assert.equal(readNamePattern(text), expected, text);
  }
});

test('a wildcard matches exactly the names with more labels, for random names', () => {
  let seed = 7;
  const random = (max: number) => {
    seed = (seed * 1103515245 + 12345) & 0x7fffffff;
    return seed % max;
  };
  const labels = ['a', 'b', 'ab', 'x-a', 'example', 'com', 'A', '_'];
  const name = () =>
    Array.from({ length: 1 + random(5) }, () => labels[random(labels.length)] ?? '').join('.');
  for (let i = 0; i < 20_000; i++) {
    const [suffix, asked] = [`${name()}.com`, name()];
    const pattern = readNamePattern(`*.${suffix}`);
    if (pattern === null) continue;
    const parts = asked.toLowerCase().split('.');
    const wanted = suffix.toLowerCase().split('.');
    const expected =
      parts.length > wanted.length &&
      wanted.every((one, i) => parts[parts.length - wanted.length + i] === one);
    const plain = plainName(asked);
    const group = nameGroup([pattern, 'other.example']);
    assert.equal(plain !== null && matchesNames(group, plain), expected, `${pattern} ${asked}`);
    const others = nameGroup(['other.example']);
    const find = indexNames([
      [group, 1],
      [others, 2],
    ]);
    assert.deepEqual(find(plain ?? ''), expected ? [1] : [], `${pattern} ${asked}`);
  }
});

test('groups are equal whatever the order of their patterns', () => {
  assert.deepEqual(nameGroup(['b.example', 'a.example', 'b.example']), nameGroup(['a.example', 'b.example']));
});
