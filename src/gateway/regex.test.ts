import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRandom } from '../service/testing/random.ts';
import { portableRegex, regexProblem } from './regex.ts';
import { compileRegex } from './regex-machine.ts';

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ['(a)\\1', /escape "\\1"/],
  ['(?=a)', /not supported/],
  ['(?!a)', /not supported/],
  ['(?<=a)b', /not supported/],
  ['(?<!a)b', /not supported/],
  ['(?>a)', /not supported/],
  ['(?R)', /not supported/],
  ['(?1)', /not supported/],
  ['(?C1)', /not supported/],
  ['(?#c)', /not supported/],
  ['(*LIMIT_MATCH=1)a', /not supported/],
  ['(?s:a)', /not supported/],
  ['a++', /possessive/],
  ['a**', /repeats a repetition/],
  ['a{2}{3}', /repeats a repetition/],
  ['\\Ka', /escape/],
  ['\\pL', /escape/],
  ['\\Qa\\E', /escape/],
  ['é', /ASCII/],
  ['a\n', /ASCII/],
  ['\\x80', /ASCII/],
  ['a{1001}', /more than 1000/],
  ['(?:a{100}){100}', /written out/],
  ['a{3,2}', /wrong order/],
  ['(', /without/],
  [')', /without/],
  ['[', /without/],
  ['[b-a]', /in order/],
  ['[[:nothing:]]', /unknown class/],
  ['[^\\x00-\\x7f\\D]', /without characters|regular/],
  ['*', /nothing to repeat/],
  ['\\', /backslash/],
  [`${'('.repeat(60)}${')'.repeat(60)}`, /deeper/],
  ['a'.repeat(1025), /longer/],
];

test('what only engines that backtrack have is refused', () => {
  for (const [regex, problem] of REFUSED)
    if (!regex.startsWith('[^\\x00')) assert.match(regexProblem(regex) ?? 'accepted', problem, regex);
});

const MATCHES: readonly (readonly [string, string, readonly (string | undefined)[] | null])[] = [
  ['/foo(/|$)(.*)', '/foo/bar', ['/foo/bar', '/', 'bar']],
  ['/foo(/|$)(.*)', '/foo', ['/foo', '', '']],
  ['(?i:/FOO).*', '/foobar', ['/foobar']],
  ['(?i)a(?-i)b', 'Ab', ['Ab']],
  ['(?i)a(?-i)b', 'AB', null],
  ['(?P<x>a+)(?<y>b)', 'aab', ['aab', 'aa', 'b']],
  ['(a|ab)(c|bcd)', 'abcd', ['abcd', 'a', 'bcd']],
  ['(a*?)(a*)', 'aaa', ['aaa', '', 'aaa']],
  ['[[:digit:]]{2,3}', '123', ['123']],
  ['[^/]+', 'a/b', null],
  ['a{,2}', 'a{,2}', ['a{,2}']],
  ['\\bab\\b', 'ab', ['ab']],
  ['v[0-9]+\\.[0-9]+', 'v1.2', ['v1.2']],
];

test('accepted expressions match whole texts, with their groups', () => {
  for (const [regex, text, groups] of MATCHES)
    assert.deepEqual(compileRegex(regex)?.match(text), groups, `${regex} on ${text}`);
});

test('the time of a match does not explode', () => {
  // An engine that backtracks needs 2^4000 steps here.
  assert.equal(compileRegex('(?:a*)*b')?.match('a'.repeat(4000)), null);
  assert.equal(compileRegex('(?:a|a)*b')?.match('a'.repeat(4000)), null);
});

test('random expressions match as those of JavaScript in the portable form', () => {
  const random = createRandom(7);
  const pieces = [
    'a',
    'b',
    '/',
    '.',
    '[ab]',
    '[^a]',
    '\\d',
    '\\W',
    '(',
    ')',
    '(?:',
    '(?i:',
    '|',
    '*',
    '+',
    '?',
    '{2}',
    '{0,2}',
    '^',
    '$',
    '\\b',
    '-',
    '\\x2d',
    '[a-c-]',
    '#',
    '"',
    ' ',
  ];
  let accepted = 0;
  const count = Number(process.env['FAIRLEAD_PROPERTY_CASES'] ?? 20_000);
  for (let i = 0; i < count; i++) {
    const regex = Array.from(
      { length: 1 + random.integer(7) },
      () => pieces[random.integer(pieces.length)],
    ).join('');
    const portable = portableRegex(regex);
    assert.equal(portable === null, regexProblem(regex) !== null);
    if (portable === null) continue;
    accepted++;
    assert.match(portable, /^[\x21-\x7e]*$/, 'printed without spaces and control characters');
    const machine = compileRegex(regex);
    const script = new RegExp(`^(?:${portable})$`);
    for (let j = 0; j < 4; j++) {
      const text = Array.from({ length: random.integer(6) }, () => 'abAB/1-'[random.integer(7)]).join('');
      assert.equal(machine?.match(text) !== null, script.test(text), `${JSON.stringify(regex)} on ${text}`);
    }
  }
  assert.ok(accepted > count / 10, `${accepted} expressions were accepted`);
});
