import { type UnicodeClass, unicodeClass } from './unicode-classes.ts';

/** The flags that are in force in a group: (?i), (?s). */
interface Flags {
  readonly ignoreCase: boolean;
  readonly dotAll: boolean;
}

/** POSIX classes, and the classes of RE2 that differ from JavaScript's; as the inside of a class. */
const POSIX: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  ascii: '\\x00-\\x7f',
  blank: '\\t ',
  cntrl: '\\x00-\\x1f\\x7f',
  digit: '0-9',
  graph: '!-~',
  lower: 'a-z',
  print: ' -~',
  punct: '!-\\/:-@\\[-`{-~',
  space: '\\t\\n\\v\\f\\r ',
  upper: 'A-Z',
  word: '0-9A-Za-z_',
  xdigit: '0-9A-Fa-f',
};
const NOT_POSIX: Readonly<Record<string, string>> = {
  alnum: '\\x00-\\/:-@\\[-`{-\\uffff',
  alpha: '\\x00-@\\[-`{-\\uffff',
  digit: '\\x00-\\/:-\\uffff',
  lower: '\\x00-`{-\\uffff',
  space: '\\x00-\\x08\\x0e-\\x1f!-\\uffff',
  upper: '\\x00-@\\[-\\uffff',
  word: '\\x00-\\/:-@\\[-^`{-\\uffff',
  xdigit: '\\x00-\\/:-@G-`g-\\uffff',
};
/** In RE2, \s has no vertical tab and no spaces beyond ASCII. */
const SPACE = '\\t\\n\\f\\r ';
const NOT_SPACE = '\\x00-\\x08\\x0b\\x0e-\\x1f!-\\uffff';
const MAX_REPEAT = 1000;

/** A pattern and how far it has been translated. */
interface Parser {
  readonly pattern: string;
  at: number;
  /** The flags of the group that is open. */
  flags: Flags;
  /** The flags of the groups around it. */
  readonly outer: Flags[];
}

/**
 * Translates a regular expression of RE2's syntax (github.com/google/re2/wiki/Syntax), which Kubernetes' patterns and CEL have,
 * for JavaScript without flags: only those are matched in linear time (`matchInLinearTime`). Throws Error for what RE2
 * refuses, such as backreferences and lookaround, and for the flags m and U, and Unicode classes without distinction of case,
 * which have no translation.
 */
function translateRe2(pattern: string): string {
  const parser: Parser = { pattern, at: 0, flags: { ignoreCase: false, dotAll: false }, outer: [] };
  let out = '';
  while (parser.at < parser.pattern.length) {
    const repeat = take(parser, /\{(\d+)(?:(,)(\d*))?\}/y);
    if (repeat) {
      const [low, high] = [Number(repeat[1]), repeat[3] ? Number(repeat[3]) : 0];
      if (low > MAX_REPEAT || high > MAX_REPEAT || (high > 0 && low > high))
        fail(`invalid repeat count: ${quoted(repeat[0])}`);
      out += repeat[0];
      continue;
    }
    switch (parser.pattern[parser.at]) {
      case '\\':
        out += escapeSequence(parser);
        break;
      case '[':
        out += bracket(parser);
        break;
      case '(':
        out += group(parser);
        break;
      case ')':
        parser.flags = parser.outer.pop() ?? fail(`unexpected ): ${quoted(parser.pattern)}`);
        out += ')';
        parser.at++;
        break;
      case '.':
        out += parser.flags.dotAll ? '[^]' : '[^\\n]';
        parser.at++;
        break;
      case '{':
      case '}':
      case ']':
        out += `\\${parser.pattern[parser.at++]}`;
        break;
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$':
        out += parser.pattern[parser.at++];
        break;
      default:
        out += literal(take(parser, /./sy)?.[0] ?? '', parser.flags);
    }
  }
  if (parser.outer.length > 0) fail(`missing closing ): ${quoted(parser.pattern)}`);
  return out;
}

function fail(problem: string): never {
  throw new Error(`error parsing regexp: ${problem}`);
}

/** Takes text that matches here. `expression` is sticky. */
const take = (parser: Parser, expression: RegExp): RegExpExecArray | null => {
  expression.lastIndex = parser.at;
  const match = expression.exec(parser.pattern);
  if (match) parser.at += match[0].length;
  return match;
};

const applied = (parser: Parser, text: string): Flags => {
  let isOn = true;
  let next = parser.flags;
  for (const letter of text) {
    if (letter === '-') isOn = false;
    else if (letter === 'i') next = { ...next, ignoreCase: isOn };
    else if (letter === 's') next = { ...next, dotAll: isOn };
    else if (isOn) fail(`the flag ${letter} is not supported here: ${quoted(parser.pattern)}`);
  }
  return next;
};

const refuseEscape = (parser: Parser): never => {
  const start = parser.pattern.slice(parser.at, parser.at + 2);
  return fail(
    start.length === 2
      ? `invalid escape sequence: ${quoted(start)}`
      : 'trailing backslash at end of expression: ``',
  );
};

/** Translates an escape that stands for one character; null: another escape. */
const character = (parser: Parser): string | null => {
  const hexadecimal = take(parser, /\\x(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))/y);
  if (hexadecimal) {
    const code = Number.parseInt(hexadecimal[1] ?? hexadecimal[2] ?? '', 16);
    if (code > 0x10ffff) fail(`invalid escape sequence: ${quoted(hexadecimal[0])}`);
    return String.fromCodePoint(code);
  }
  const octal = take(parser, /\\(0[0-7]{0,2}|[1-7][0-7]{1,2})/y);
  if (octal) return String.fromCodePoint(Number.parseInt(octal[1] ?? '', 8));
  if (take(parser, /\\a/y)) return '\x07';
  return take(parser, /\\([^0-9A-Za-z])/sy)?.[1] ?? null;
};

/** Takes a Unicode class; null: something else is here. */
const unicode = (parser: Parser): UnicodeClass | null => {
  const match = take(parser, /\\([pP])(?:([A-Z])|\{(\^?)([A-Za-z_]+)\})/y);
  if (!match) return null;
  const isNegated = (match[1] === 'P') !== (match[3] === '^');
  if (parser.flags.ignoreCase) fail(`Unicode classes with (?i) are not supported here: ${quoted(match[0])}`);
  return (
    unicodeClass(match[2] ?? match[4] ?? '', isNegated) ??
    fail(`invalid character class range: ${quoted(match[0])}`)
  );
};

const escapeSequence = (parser: Parser): string => {
  const named = unicode(parser);
  if (named) return alternatives(`[${named.basic}]`, named.pairs);
  const one = character(parser);
  if (one !== null) return literal(one, parser.flags);
  if (take(parser, /\\A/y)) return '^';
  if (take(parser, /\\z/y)) return '$';
  if (take(parser, /\\s/y)) return `[${SPACE}]`;
  if (take(parser, /\\S/y)) return `[^${SPACE}]`;
  const quote = take(parser, /\\Q(.*?)(?:\\E|$)/sy);
  if (quote) return [...(quote[1] ?? '')].map((char) => literal(char, parser.flags)).join('');
  const same = take(parser, /\\[dDwWbBfnrtv]/y);
  if (same) return same[0];
  return refuseEscape(parser);
};

const bracket = (parser: Parser): string => {
  const start = parser.at;
  parser.at++;
  const isNegated = take(parser, /\^/y) !== null;
  let inside = '';
  const classes: UnicodeClass[] = [];
  for (let isFirst = true; isFirst || parser.pattern[parser.at] !== ']'; isFirst = false) {
    if (parser.at >= parser.pattern.length) fail(`missing closing ]: ${quoted(parser.pattern.slice(start))}`);
    const posix = take(parser, /\[:(\^?)(\w+):\]/y);
    if (posix) {
      const range = (posix[1] === '' ? POSIX : NOT_POSIX)[posix[2] ?? ''];
      inside += range ?? fail(`invalid character class range: ${quoted(posix[0])}`);
      continue;
    }
    const named = unicode(parser);
    if (named) {
      classes.push(named);
      continue;
    }
    const set = take(parser, /\\[dDwWsS]/y)?.[0];
    if (set) {
      inside += set === '\\s' ? SPACE : set === '\\S' ? NOT_SPACE : set;
      continue;
    }
    const from = member(parser);
    if (
      parser.pattern[parser.at] === '-' &&
      parser.at + 1 < parser.pattern.length &&
      parser.pattern[parser.at + 1] !== ']'
    ) {
      parser.at++;
      const to = member(parser);
      if (from > to) fail(`invalid character class range: ${quoted(`${char(from)}-${char(to)}`)}`);
      inside += rangeText(from, to, parser.flags);
    } else inside += rangeText(from, from, parser.flags);
  }
  parser.at++;
  if (classes.length === 0) return `[${isNegated ? '^' : ''}${inside}]`;
  const basic = inside + classes.map((one) => one.basic).join('');
  const pairs = classes.flatMap((one) => one.pairs);
  if (!isNegated) return alternatives(`[${basic}]`, pairs);
  const [only, ...more] = classes;
  const others = only && more.length === 0 ? unicodeClass(only.name, !only.isNegated) : null;
  if (others === null)
    return fail(
      `several Unicode classes in [^…] are not supported here: ${quoted(parser.pattern.slice(start, parser.at))}`,
    );
  return alternatives(`[^${basic}\\ud800-\\udfff]`, others.pairs);
};

/** Takes one character of a class; returns its code. */
const member = (parser: Parser): number => {
  const control = take(parser, /\\([fnrtv])/y)?.[1];
  const one =
    control !== undefined
      ? ({ f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }[control] ?? '')
      : (character(parser) ??
        (parser.pattern[parser.at] === '\\' ? refuseEscape(parser) : (take(parser, /./sy)?.[0] ?? '')));
  return one.charCodeAt(0);
};

const group = (parser: Parser): string => {
  const inline = take(parser, /\(\?([imsU]*(?:-[imsU]+)?)([:)])/y);
  if (inline) {
    if (inline[2] === ')') {
      parser.flags = applied(parser, inline[1] ?? '');
      return '';
    }
    parser.outer.push(parser.flags);
    parser.flags = applied(parser, inline[1] ?? '');
    return '(?:';
  }
  const named = take(parser, /\(\?P?<(\w+)>/y);
  if (!named && parser.pattern.startsWith('(?', parser.at))
    fail(`invalid or unsupported Perl syntax: ${quoted(parser.pattern.slice(parser.at, parser.at + 3))}`);
  if (!named) parser.at++;
  parser.outer.push(parser.flags);
  return named ? `(?<${named[1]}>` : '(';
};

const alternatives = (one: string, others: readonly string[]): string =>
  others.length === 0 ? one : `(?:${[one, ...others].join('|')})`;
const quoted = (text: string) => `\`${text}\``;
const char = (code: number) => String.fromCharCode(code);

/** Writes one character outside of a class; in both cases if they are not distinguished. */
function literal(one: string, { ignoreCase }: Flags): string {
  const escaped = [...one].flatMap((point) => point.split('')).map((unit) => code(unit.charCodeAt(0)));
  if (!ignoreCase || one.length > 1) return escaped.join('');
  const cases = new Set([one, one.toLowerCase(), one.toUpperCase()].filter((text) => text.length === 1));
  if (cases.size === 1) return escaped.join('');
  return `[${[...cases].map((text) => code(text.charCodeAt(0))).join('')}]`;
}

/** Writes a range of a class; without distinction of case with the ASCII letters of the other case. */
function rangeText(from: number, to: number, { ignoreCase }: Flags): string {
  const text = from === to ? code(from) : `${code(from)}-${code(to)}`;
  if (!ignoreCase) return text;
  const others = [
    [0x41, 0x5a, 32],
    [0x61, 0x7a, -32],
  ].flatMap(([first = 0, last = 0, distance = 0]) => {
    const [low, high] = [Math.max(from, first), Math.min(to, last)];
    return low > high ? [] : [`${code(low + distance)}-${code(high + distance)}`];
  });
  return text + others.join('');
}

/** Writes a UTF-16 unit so that it has no other meaning, inside or outside of a class. */
const code = (unit: number): string =>
  /[0-9A-Za-z_]/.test(char(unit)) ? char(unit) : `\\u${unit.toString(16).padStart(4, '0')}`;

/**
 * Compiles a pattern of RE2's syntax. `global`: for `matchAll`. The flag m is supported at the start of a pattern. Throws as
 * `translateRe2`.
 */
export function re2(pattern: string, global = false): RegExp {
  const [whole = '', before = '', after = ''] = /^\(\?([is]*)m([ims]*)\)/.exec(pattern) ?? [];
  const isMultiline = whole !== '';
  if (isMultiline && /\\[Az]/.test(pattern))
    throw new Error(`error parsing regexp: the flag m is not supported with \\A or \\z: ${quoted(pattern)}`);
  const rest = isMultiline
    ? `(?${`${before}${after}`.replaceAll('m', '')})${pattern.slice(whole.length)}`
    : pattern;
  try {
    return new RegExp(translateRe2(rest), `${global ? 'g' : ''}${isMultiline ? 'm' : ''}`);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Error(`error parsing regexp: ${error.message}`);
    throw error;
  }
}
