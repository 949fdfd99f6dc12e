/**
 * Parses regular expressions of RE2's syntax into a tree of sets of characters, of which every engine has the same idea. What
 * engines that backtrack have more (backreferences, look-around, possessive quantifiers, recursion, callouts, verbs) is not
 * part of RE2 and refused, and so is what depends on a character set: characters and escapes above 0x7f, \p, \C.
 * Lengths and repetitions are bounded.
 */
export type RegexNode =
  | { readonly kind: 'set'; readonly set: CharacterSet }
  | { readonly kind: 'sequence' | 'choice'; readonly items: readonly RegexNode[] }
  | {
      readonly kind: 'repeat';
      readonly item: RegexNode;
      readonly low: number;
      /** Infinity: no limit. */
      readonly high: number;
      readonly lazy: boolean;
    }
  /** `capture`: number of the group, from 1; null: it captures nothing. */
  | { readonly kind: 'group'; readonly item: RegexNode; readonly capture: number | null }
  | { readonly kind: 'assertion'; readonly at: 'start' | 'end' | 'word-edge' | 'no-word-edge' };

/** Ranges of characters in order, without overlap: [first, last] each, of 0 to 255. */
export type CharacterSet = readonly (readonly [number, number])[];

export interface Regex {
  readonly node: RegexNode;
  /** Number of groups that capture. */
  readonly captures: number;
}

export const LONGEST_REGEX = 1024;
/** RE2's bound of one repetition. */
const MAX_REPETITIONS = 1000;
/** Characters and assertions after every repetition is written out. */
const LARGEST_PROGRAM = 2000;
const DEEPEST = 50;
const LAST = 255;

const DIGITS: CharacterSet = [[48, 57]];
const WORDS: CharacterSet = [
  [48, 57],
  [65, 90],
  [95, 95],
  [97, 122],
];
const SPACES: CharacterSet = [
  [9, 10],
  [12, 13],
  [32, 32],
];
const NOT_NEWLINE: CharacterSet = [
  [0, 9],
  [11, LAST],
];
const PERL: Readonly<Record<string, CharacterSet>> = { d: DIGITS, w: WORDS, s: SPACES };
const CONTROLS: Readonly<Record<string, number>> = { a: 7, f: 12, t: 9, n: 10, r: 13, v: 11 };
const POSIX: Readonly<Record<string, CharacterSet>> = {
  alnum: [
    [48, 57],
    [65, 90],
    [97, 122],
  ],
  alpha: [
    [65, 90],
    [97, 122],
  ],
  ascii: [[0, 127]],
  blank: [
    [9, 9],
    [32, 32],
  ],
  cntrl: [
    [0, 31],
    [127, 127],
  ],
  digit: DIGITS,
  graph: [[33, 126]],
  lower: [[97, 122]],
  print: [[32, 126]],
  punct: [
    [33, 47],
    [58, 64],
    [91, 96],
    [123, 126],
  ],
  space: [
    [9, 13],
    [32, 32],
  ],
  upper: [[65, 90]],
  word: WORDS,
  xdigit: [
    [48, 57],
    [65, 70],
    [97, 102],
  ],
};

interface Parser {
  readonly text: string;
  at: number;
  captures: number;
  depth: number;
  /** Letters match in both cases. */
  folded: boolean;
}

/** Reason for which a regular expression is refused. */
class Refusal {
  readonly problem: string;
  constructor(problem: string) {
    this.problem = problem;
  }
}

const refuse = (problem: string): never => {
  throw new Refusal(problem);
};

/** Parses a regular expression; returns the problem with it if it is refused. */
export function parseRegex(text: string): Regex | { readonly problem: string } {
  if (text.length > LONGEST_REGEX) return { problem: `is longer than ${LONGEST_REGEX} characters` };
  if (/[^\x20-\x7e]/.test(text)) return { problem: 'has a character outside printable ASCII' };
  const parser: Parser = { text, at: 0, captures: 0, depth: 0, folded: false };
  try {
    const node = parseChoice(parser);
    if (parser.at < text.length) return { problem: `has a ")" without "(" at position ${parser.at + 1}` };
    if (sizeOf(node) > LARGEST_PROGRAM)
      return { problem: `repeats too much: more than ${LARGEST_PROGRAM} characters when written out` };
    return { node, captures: parser.captures };
  } catch (error) {
    if (error instanceof Refusal) return { problem: error.problem };
    throw error;
  }
}

function sizeOf(node: RegexNode): number {
  switch (node.kind) {
    case 'set':
    case 'assertion':
      return 1;
    case 'group':
      return sizeOf(node.item) + 1;
    case 'repeat':
      return (
        (sizeOf(node.item) + 1) *
        Math.max(node.low, node.high === Number.POSITIVE_INFINITY ? 1 : node.high, 1)
      );
    default:
      return node.items.reduce((sum, item) => sum + sizeOf(item), 1);
  }
}

function parseChoice(parser: Parser): RegexNode {
  if (++parser.depth > DEEPEST) refuse(`nests groups deeper than ${DEEPEST}`);
  const items = [parseSequence(parser)];
  while (parser.text[parser.at] === '|') {
    parser.at++;
    items.push(parseSequence(parser));
  }
  parser.depth--;
  const [first] = items;
  return items.length === 1 && first ? first : { kind: 'choice', items };
}

function parseSequence(parser: Parser): RegexNode {
  const items: RegexNode[] = [];
  while (parser.at < parser.text.length) {
    const next = parser.text[parser.at];
    if (next === '|' || next === ')') break;
    const item = parseItem(parser);
    if (item) items.push(parseRepeat(parser, item));
  }
  return { kind: 'sequence', items };
}

/** Parses a character, class, group or assertion; null: flags, which match nothing. */
function parseItem(parser: Parser): RegexNode | null {
  const next = parser.text[parser.at++] ?? '';
  switch (next) {
    case '(':
      return parseGroup(parser);
    case '[':
      return set(parser, parseClass(parser));
    case '.':
      return { kind: 'set', set: NOT_NEWLINE };
    case '^':
      return { kind: 'assertion', at: 'start' };
    case '$':
      return { kind: 'assertion', at: 'end' };
    case '\\':
      return parseEscape(parser);
    case '*':
    case '+':
    case '?':
      return refuse(`has "${next}" with nothing to repeat at position ${parser.at}`);
    default:
      return set(parser, single(next.charCodeAt(0)));
  }
}

const single = (code: number): CharacterSet => [[code, code]];

const set = (parser: Parser, characters: CharacterSet): RegexNode => ({
  kind: 'set',
  set: parser.folded ? fold(characters) : characters,
});

function parseGroup(parser: Parser): RegexNode | null {
  const rest = parser.text.slice(parser.at);
  const folded = parser.folded;
  let capture: number | null = null;
  const flags = /^\?(-?i)?([:)])/.exec(rest);
  const named = /^\?P?<[A-Za-z_][A-Za-z0-9_]{0,63}>/.exec(rest);
  if (flags) {
    parser.at += flags[0].length;
    if (flags[1] !== undefined) parser.folded = flags[1] === 'i';
    if (flags[2] === ')') {
      if (flags[1] === undefined) refuse('has the group "(?)"');
      return null;
    }
  } else if (named) {
    parser.at += named[0].length;
    capture = ++parser.captures;
  } else if (rest.startsWith('?') || rest.startsWith('*')) {
    refuse(
      `has the group "(${rest.slice(0, 3)}", which is not supported: use (?:…), (?i:…) or a plain group`,
    );
  } else capture = ++parser.captures;
  const item = parseChoice(parser);
  if (parser.text[parser.at] !== ')') refuse('has a "(" without ")"');
  parser.at++;
  // Flags that are set within a group end with it.
  parser.folded = folded;
  return { kind: 'group', item, capture };
}

function parseRepeat(parser: Parser, item: RegexNode): RegexNode {
  const [token, low = '', comma = '', high = ''] =
    /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(parser.text.slice(parser.at, parser.at + 16)) ?? [];
  // Like RE2, a "{" that begins no repetition stands for itself; PCRE2 10.43 reads "{,3}", so it is escaped when printed.
  if (token === undefined) return item;
  parser.at += token.length;
  const bounds =
    token === '*'
      ? ([0, Number.POSITIVE_INFINITY] as const)
      : token === '+'
        ? ([1, Number.POSITIVE_INFINITY] as const)
        : token === '?'
          ? ([0, 1] as const)
          : ([
              Number(low),
              comma === '' ? Number(low) : high === '' ? Number.POSITIVE_INFINITY : Number(high),
            ] as const);
  if (bounds[0] > MAX_REPETITIONS || (Number.isFinite(bounds[1]) && bounds[1] > MAX_REPETITIONS))
    refuse(`repeats more than ${MAX_REPETITIONS} times`);
  if (bounds[1] < bounds[0]) refuse(`has the repetition "${token}", whose bounds are in the wrong order`);
  if (comma === '' && high !== '') refuse(`has the repetition "${token}"`);
  const lazy = parser.text[parser.at] === '?';
  if (lazy) parser.at++;
  if (/^(?:[*+?]|\{\d+,?\d*\})/.test(parser.text.slice(parser.at, parser.at + 16)))
    refuse(`repeats a repetition at position ${parser.at + 1}: possessive quantifiers are not supported`);
  if (item.kind === 'assertion') refuse('repeats an anchor');
  return { kind: 'repeat', item, low: bounds[0], high: bounds[1], lazy };
}

function parseEscape(parser: Parser): RegexNode {
  const next = parser.text[parser.at] ?? '';
  const assertion = ({ A: 'start', z: 'end', b: 'word-edge', B: 'no-word-edge' } as const)[next];
  if (assertion && Object.hasOwn({ A: 1, z: 1, b: 1, B: 1 }, next)) {
    parser.at++;
    return { kind: 'assertion', at: assertion };
  }
  return set(parser, parseEscapedSet(parser));
}

/** Parses what follows a backslash, within a class or outside. */
function parseEscapedSet(parser: Parser): CharacterSet {
  const next = parser.text[parser.at++] ?? refuse('ends with a backslash');
  const lower = next.toLowerCase();
  const perl = Object.hasOwn(PERL, lower) ? PERL[lower] : undefined;
  if (perl) return next === lower ? perl : invert(perl);
  const control = Object.hasOwn(CONTROLS, next) ? CONTROLS[next] : undefined;
  if (control !== undefined) return single(control);
  if (next === 'x') {
    const [whole = '', two, braces] =
      /^(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})/.exec(parser.text.slice(parser.at, parser.at + 9)) ?? [];
    const code = Number.parseInt(two ?? braces ?? '', 16);
    if (!(code <= 127)) refuse('has an escape "\\x" that is not a character of ASCII');
    parser.at += whole.length;
    return single(code);
  }
  if (/[A-Za-z0-9]/.test(next)) refuse(`has the escape "\\${next}", which is not supported`);
  return single(next.charCodeAt(0));
}

function parseClass(parser: Parser): CharacterSet {
  const { text } = parser;
  const negated = text[parser.at] === '^';
  if (negated) parser.at++;
  let found: CharacterSet = [];
  let first = true;
  for (;;) {
    if (parser.at >= text.length) refuse('has a "[" without "]"');
    if (text[parser.at] === ']' && !first) break;
    first = false;
    found = union(found, parseClassItem(parser));
  }
  parser.at++;
  if (parser.folded) found = fold(found);
  const result = negated ? invert(found) : found;
  return result.length > 0 ? result : refuse('has a class without characters');
}

function parseClassItem(parser: Parser): CharacterSet {
  const { text } = parser;
  const [posix, not, name = ''] = /^\[:(\^?)([a-z]+):\]/.exec(text.slice(parser.at, parser.at + 16)) ?? [];
  if (posix !== undefined) {
    const known = Object.hasOwn(POSIX, name) ? POSIX[name] : undefined;
    parser.at += posix.length;
    return known ? (not ? invert(known) : known) : refuse(`has the unknown class "${posix}"`);
  }
  const low = parseClassCharacter(parser);
  if (text[parser.at] !== '-' || text[parser.at + 1] === ']' || parser.at + 1 >= text.length) return low;
  parser.at++;
  const high = parseClassCharacter(parser);
  const [[from, fromEnd] = [0, 1], ...more] = low;
  const [[to, toEnd] = [0, 1], ...others] = high;
  if (more.length > 0 || others.length > 0 || from !== fromEnd || to !== toEnd || to < from)
    refuse('has a range in a class whose ends are not characters in order');
  return [[from, to]];
}

function parseClassCharacter(parser: Parser): CharacterSet {
  const next = parser.text[parser.at++] ?? refuse('has a "[" without "]"');
  return next === '\\' ? parseEscapedSet(parser) : single(next.charCodeAt(0));
}

function union(a: CharacterSet, b: CharacterSet): CharacterSet {
  const sorted = [...a, ...b].sort((x, y) => x[0] - y[0]);
  const merged: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = merged.at(-1);
    if (last && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

function invert(characters: CharacterSet): CharacterSet {
  const found: [number, number][] = [];
  let next = 0;
  for (const [from, to] of characters) {
    if (from > next) found.push([next, from - 1]);
    next = to + 1;
  }
  if (next <= LAST) found.push([next, LAST]);
  return found;
}

/** Adds the other case of each letter of ASCII. */
function fold(characters: CharacterSet): CharacterSet {
  let found = characters;
  for (const [low, high, shift] of [
    [65, 90, 32],
    [97, 122, -32],
  ] as const)
    for (const [from, to] of characters) {
      const first = Math.max(from, low);
      const last = Math.min(to, high);
      if (first <= last) found = union(found, [[first + shift, last + shift]]);
    }
  return found;
}
