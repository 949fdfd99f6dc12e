import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHostClaims } from './host-claims.ts';
import { compareHosts, hostMatches, intersectHosts, patternsOf, readHostname } from './host-pattern.ts';

const LABELS = ['a', 'b', 'ab'];
const NAMES = [
  ...LABELS,
  ...LABELS.flatMap((one) => LABELS.map((two) => `${one}.${two}`)),
  ...LABELS.flatMap((one) => LABELS.flatMap((two) => LABELS.map((three) => `${one}.${two}.${three}`))),
];
const PATTERNS = [
  '',
  ...NAMES,
  ...NAMES.filter((name) => name.split('.').length < 3).map((name) => `*.${name}`),
];

test('hostnames of objects: DNS names and one wildcard label', () => {
  for (const [given, expected] of [
    ['a.Example', 'a.example'],
    ['*.a.example', '*.a.example'],
    ['*', null],
    ['', null],
    ['a.', null],
    ['a..b', null],
    ['*.*.a', null],
    ['a.*.b', null],
    ['*a.b', null],
    ['a_b', null],
    ['-a.b', null],
    ['1.2.3.4', '1.2.3.4'],
    ['a b', null],
    ['a\nb', null],
    [`${'a'.repeat(64)}.b`, null],
    [`${'a.'.repeat(130)}b`, null],
  ] as const)
    assert.equal(readHostname(given), expected, given);
});

test('an intersection has the names that both patterns have', () => {
  for (const a of PATTERNS)
    for (const b of PATTERNS) {
      const common = intersectHosts(a, b);
      for (const name of NAMES)
        assert.equal(
          common !== null && hostMatches(common, name),
          hostMatches(a, name) && hostMatches(b, name),
          `${a} and ${b} on ${name}`,
        );
    }
});

test('the patterns of a name are those that match it, the most specific first', () => {
  for (const name of NAMES) {
    const matching = PATTERNS.filter((pattern) => hostMatches(pattern, name));
    assert.deepEqual(
      patternsOf(name).filter((pattern) => PATTERNS.includes(pattern)),
      matching.sort(compareHosts),
    );
  }
  assert.equal(hostMatches('*.b', 'a.ab.b', true), false);
  assert.equal(hostMatches('*.b', 'ab.b', true), true);
});

test('claims know whether any pattern of theirs intersects', () => {
  for (const a of PATTERNS)
    for (const b of PATTERNS.slice(0, 20)) {
      const claims = createHostClaims();
      claims.add(a);
      claims.add(b);
      for (const asked of PATTERNS)
        assert.equal(
          claims.intersects(asked),
          [a, b].some((own) => intersectHosts(own, asked) !== null),
          `${a}, ${b} and ${asked}`,
        );
    }
});
