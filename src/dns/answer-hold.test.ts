import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answeredAddresses, withMaxTtl } from './answer-hold.ts';
import { emptyAnswer, RCODE, type ResourceRecord, TYPE } from './message.ts';

const a = (name: string, last: number, ttl = 60): ResourceRecord => ({
  ...{ name, type: TYPE.A, class: 1, ttl },
  data: Uint8Array.of(192, 0, 2, last),
});
const aaaa = (name: string, bytes: readonly number[]): ResourceRecord => ({
  ...{ name, type: TYPE.AAAA, class: 1, ttl: 60 },
  data: Uint8Array.from(bytes),
});
const cname = (name: string, target: string, ttl = 60): ResourceRecord => ({
  ...{ name, type: TYPE.CNAME, class: 1, ttl },
  data: { target },
});
const MAPPED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1];
const loop = Array.from({ length: 40 }, (_, i) => cname(`l${i}`, `l${(i + 1) % 40}`));

const rows: readonly (readonly [
  what: string,
  type: number,
  answers: ResourceRecord[],
  addresses: string[],
  ttl: number,
])[] = [
  ['addresses, each once', TYPE.A, [a('N', 1), a('n', 2, 30), a('n', 1)], ['192.0.2.1', '192.0.2.2'], 30],
  [
    'behind aliases, in any order',
    TYPE.A,
    [a('c', 1), cname('B', 'C'), cname('n', 'b', 20)],
    ['192.0.2.1'],
    20,
  ],
  ['no records of other names', TYPE.A, [a('n', 1), a('other', 2), cname('other', 'n')], ['192.0.2.1'], 60],
  [
    'no records of the name besides its alias',
    TYPE.A,
    [cname('n', 'c'), a('n', 1), a('c', 2)],
    ['192.0.2.2'],
    60,
  ],
  ['no records of another type', TYPE.AAAA, [a('n', 1), aaaa('n', MAPPED)], ['::ffff:192.0.2.1'], 60],
  [
    'no records of another length or class',
    TYPE.A,
    [
      { ...a('n', 1), data: Uint8Array.of(1, 2, 3) },
      { ...a('n', 2), class: 3 },
    ],
    [],
    0,
  ],
  ['aliases in a circle', TYPE.A, [cname('n', 'l0'), ...loop, a('n', 1)], [], 0],
  ['an alias to nothing', TYPE.A, [cname('n', 'c')], [], 0],
  ['other questions', TYPE.MX, [a('n', 1)], [], 0],
];
for (const [what, type, answers, addresses, ttl] of rows) {
  test(`the addresses of an answer: ${what}`, () => {
    const answer = { ...emptyAnswer(RCODE.NOERROR), answers };
    assert.deepEqual(answeredAddresses({ name: 'n', type, class: 1 }, answer), { addresses, ttl });
  });
}

test('an error has no addresses', () => {
  const answer = { ...emptyAnswer(RCODE.NXDOMAIN), answers: [a('n', 1)] };
  assert.deepEqual(answeredAddresses({ name: 'n', type: TYPE.A, class: 1 }, answer).addresses, []);
});

test('a TTL that is too long is lowered, in a copy', () => {
  const short = { ...emptyAnswer(RCODE.NOERROR), answers: [a('n', 1, 10)] };
  assert.equal(withMaxTtl(short, 10), short);
  const long = { ...short, answers: [a('n', 1, 10), a('n', 2, 11)] };
  assert.deepEqual(
    withMaxTtl(long, 10).answers.map(({ ttl }) => ttl),
    [10, 10],
  );
  assert.deepEqual(
    long.answers.map(({ ttl }) => ttl),
    [10, 11],
  );
});
