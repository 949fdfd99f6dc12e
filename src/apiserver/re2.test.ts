import assert from 'node:assert/strict';
import { test } from 'node:test';
import { re2 } from './re2.ts';

// Expected results are those of Go's package regexp.
const MATCHES: readonly (readonly [pattern: string, text: string, result: boolean])[] = [
  ['^(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*$', 'Foo.Bar_1', true],
  ['^(?i)\\.?[a-z_][a-z_0-9]*$', '1x', false],
  ['a(?i)b|c', 'C', true],
  ['a(?i)b|c', 'AB', false],
  ['(a(?i)b)c', 'aBC', false],
  ['(?i:a)b', 'Ab', true],
  ['(?i:a)b', 'AB', false],
  ['(?i)[a-c]é', 'BÉ', true],
  ['(?i)(?-i)a', 'A', false],
  ['a.b', 'a\nb', false],
  ['a.b', 'a\rb', true],
  ['(?s)a.b', 'a\nb', true],
  ['(?m)^b$', 'a\nb', true],
  ['^a\n\rb$', 'a\n\rb', true],
  ['^[\n\r]$', '\r', true],
  ['^\\Qa\n.\\E$', 'a\n.', true],
  ['^\\\n$', '\n', true],
  ['^b$', 'a\nb', false],
  ['\\Aa\\z', 'a', true],
  ['\\Aa\\z', 'a\n', false],
  ['(?P<year>\\d+)-(?<month>\\d+)', '2026-11', true],
  ['^[[:alpha:]][[:alnum:]-]*$', 'a-1', true],
  ['^[[:^digit:]]+$', 'a1', false],
  ['^[^[:space:]]+$', 'a b', false],
  ['^\\s$', '\u00a0', false],
  ['^\\s$', '\v', false],
  ['^[\\S]$', '\v', true],
  ['^\\Qa.b\\E$', 'a.b', true],
  ['^\\Qa.b\\E$', 'axb', false],
  ['^\\x41\\x{42}\\103$', 'ABC', true],
  ['^a{,2}$', 'a{,2}', true],
  ['^a{2,3}$', 'aaa', true],
  ['^{}]$', '{}]', true],
  ['^[]a]+$', ']a', true],
  ['^[^]a]$', ']', false],
  ['^[a\\-z]$', '-', true],
  ['^[a\\-z]$', 'b', false],
  ['^[-a]$', '-', true],
  ['^[a-]$', '-', true],
  ['^\\-\\_\\@$', '-_@', true],
  ['^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$', 'a-b.example', true],
  ['^(?:\\$|\\^|\\/)$', '/', true],
  ['[&&^]', '&', true],
  ['\\bfoo\\b', 'a foo b', true],
  ['(a|b)??c', 'bc', true],
  ['^\\PC*$', 'é \u{1f600}', true],
  ['^\\PC*$', 'a\u200b', false],
  ['^\\pL+$', 'aé\u{10400}', true],
  ['^\\p{Lu}$', 'a', false],
  ['^\\p{^Lu}$', 'a', true],
  ['^\\P{^Lu}$', 'A', true],
  ['^\\p{Greek}+$', 'αβ', true],
  ['^[\\p{L}0-9]+$', 'é1\u{10400}', true],
  ['^[\\p{L}0-9]+$', '-', false],
  ['^[^\\p{L}0-9]$', '\u{1f600}', true],
  ['^[^\\p{L}0-9]$', '\u{10400}', false],
  ['^[^\\p{L}0-9]$', '1', false],
  ['^\\PL$', '\u{10400}', false],
];
for (const [pattern, text, result] of MATCHES)
  test(`${pattern} ${result ? 'matches' : 'does not match'} ${JSON.stringify(text)}`, () => {
    assert.equal(re2(pattern).test(text), result, re2(pattern).source);
  });

const REFUSED: readonly (readonly [pattern: string, problem: RegExp])[] = [
  ['\\p{Nope}', /invalid character class range: `\\p\{Nope\}`/],
  ['\\p{L', /invalid escape sequence: `\\p`/],
  ['(?i)\\pL', /Unicode classes with \(\?i\)/],
  ['[^\\pL\\pN]', /several Unicode classes/],
  ['(a)\\1', /invalid escape sequence: `\\1`/],
  ['a(?=b)', /invalid or unsupported Perl syntax: `\(\?=`/],
  ['(?<!a)b', /invalid or unsupported Perl syntax: `\(\?<`/],
  ['a)', /unexpected \)/],
  ['(a', /missing closing \)/],
  ['[a', /missing closing \]/],
  ['[z-a]', /invalid character class range: `z-a`/],
  ['[[:letter:]]', /invalid character class range: `\[:letter:\]`/],
  ['a{1001}', /invalid repeat count: `\{1001\}`/],
  ['a{3,2}', /invalid repeat count: `\{3,2\}`/],
  ['a\\', /trailing backslash/],
  ['\\y', /invalid escape sequence: `\\y`/],
  ['a**', /error parsing regexp/],
  ['(?U)a+', /the flag U is not supported/],
  ['a(?m)^b', /the flag m is not supported/],
];
for (const [pattern, problem] of REFUSED)
  test(`${pattern} is refused`, () => {
    assert.throws(() => re2(pattern), problem);
  });

test('all matches of a pattern', () => {
  assert.deepEqual(
    [...'a1B22'.matchAll(re2('(?i)[a-b]\\d+', true))].map(([found]) => found),
    ['a1', 'B22'],
  );
});
