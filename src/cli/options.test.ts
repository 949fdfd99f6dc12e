import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { choice, flag, parseWords, text, texts, wholeNumber } from './options.ts';

const syntax = {
  name: 'make',
  arguments: [
    { name: 'FROM', help: '' },
    { name: 'TO', help: '', optional: true, choices: ['here', 'there'] },
  ],
  options: {
    file: texts('FILE', '', { short: 'f' }),
    count: wholeNumber('N', [1, 1, 10], ''),
    mode: choice('MODE', ['fast', 'slow'], 'fast', ''),
    access: choice('services', ['none', 'wire', 'services'], 'none', '', { implied: 'wire' }),
    name: text('NAME', '', { fallback: 'default' }),
    config: text('FILE', ''),
    detach: flag(''),
  },
} as const;
const DEFAULTS = {
  file: [],
  count: 1,
  mode: 'fast',
  access: 'none',
  name: 'default',
  config: null,
  detach: false,
};

describe('valid command lines', () => {
  const rows: { words: string; args?: string[]; options?: object; given?: string[] }[] = [
    { words: 'a', args: ['a'] },
    { words: 'a here', args: ['a', 'here'] },
    { words: 'a --count 3', options: { count: 3 }, given: ['count'] },
    { words: '--count=3 a', options: { count: 3 }, given: ['count'] },
    { words: '-f x a -f y', options: { file: ['x', 'y'] }, given: ['file'] },
    { words: '-fx a --file=y', options: { file: ['x', 'y'] }, given: ['file'] },
    { words: 'a -f -', options: { file: ['-'] }, given: ['file'] },
    { words: 'a --mode slow --detach', options: { mode: 'slow', detach: true }, given: ['mode', 'detach'] },
    { words: '--access a', options: { access: 'wire' }, given: ['access'] },
    { words: 'a --access=services', options: { access: 'services' }, given: ['access'] },
    { words: 'a --config=a=b', options: { config: 'a=b' }, given: ['config'] },
    { words: '-- --count', args: ['--count'] },
    { words: '-', args: ['-'] },
  ];
  for (const { words, args = ['a'], options = {}, given = [] } of rows) {
    test(words, () => {
      const parsed = parseWords(syntax, words.split(' '));
      assert.deepEqual(
        [parsed.args, parsed.options, [...parsed.given]],
        [args, { ...DEFAULTS, ...options }, given],
      );
    });
  }
});

describe('invalid command lines: the error names the wrong argument, and a correction if known', () => {
  const rows: [words: string, message: string][] = [
    ['', 'missing FROM'],
    ['a --cuont 3', 'unknown option --cuont: did you mean --count?'],
    ['a --colour', 'unknown option --colour'],
    ['a -x', 'unknown option -x'],
    ['a --count', '--count needs a value: N'],
    ['a --count many', '--count takes an integer from 1 to 10, not "many"'],
    ['a --count 11', '--count takes an integer from 1 to 10, not "11"'],
    ['a --count -3', '--count takes an integer from 1 to 10, not "-3"'],
    ['a --count 1 --count 2', '--count is given twice'],
    ['a --mode slwo', '--mode takes one of fast, slow, not "slwo": did you mean slow?'],
    ['a --access=all', '--access takes one of none, wire, services, not "all"'],
    ['a --detach=yes', '--detach takes no value, not "yes"'],
    ['a heer', 'TO is one of here, there, not "heer": did you mean here?'],
    ['a here b', 'unexpected argument "b"'],
  ];
  for (const [words, message] of rows) {
    test(words === '' ? 'nothing' : words, () => {
      assert.throws(() => parseWords(syntax, words === '' ? [] : words.split(' ')), {
        message,
        code: 'usage',
        hint: 'fairlead make --help',
      });
    });
  }
});

describe('a program', () => {
  const run = {
    name: 'run',
    arguments: [{ name: 'POD', help: '' }],
    program: 'COMMAND…',
    options: {
      container: text('C', '', { short: 'c' }),
      stdin: flag('', { short: 'i' }),
      tty: flag('', { short: 't' }),
    },
  };
  const rows: readonly (readonly [
    what: string,
    words: string,
    args: string[],
    program: string[],
    given: string[],
  ])[] = [
    ['after "--" keeps its options', 'web -- ls --help -- -l', ['web'], ['ls', '--help', '--', '-l'], []],
    ['after the arguments keeps its options', 'web ls --help -l', ['web'], ['ls', '--help', '-l'], []],
    ['after an option with a value', '-c web web ls -c', ['web'], ['ls', '-c'], ['container']],
    ['after an option behind the argument', 'web --container=a ls', ['web'], ['ls'], ['container']],
    ['keeps a "--" of its own', 'web sh -- -c', ['web'], ['sh', '--', '-c'], []],
    ['after joined flags', '-it web -- sh', ['web'], ['sh'], ['stdin', 'tty']],
    ['after joined flags behind the argument', 'web -ti sh -i', ['web'], ['sh', '-i'], ['tty', 'stdin']],
  ];
  for (const [what, words, args, program, given] of rows) {
    test(what, () => {
      const parsed = parseWords(run, words.split(' '));
      assert.deepEqual([parsed.args, parsed.program, [...parsed.given]], [args, program, given]);
    });
  }
  for (const words of [['web'], ['web', '--'], ['-it', 'web']]) {
    test(`missing in "${words.join(' ')}"`, () => {
      assert.throws(() => parseWords(run, words), { message: 'missing COMMAND…' });
    });
  }
  test('unknown letters of joined flags are named', () => {
    assert.throws(() => parseWords(run, ['-ix', 'web', '--', 'ls']), { message: 'unknown option -x' });
  });
});
