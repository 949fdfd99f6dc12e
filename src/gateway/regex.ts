import { type CharacterSet, parseRegex, type RegexNode } from './regex-syntax.ts';

/** Returns why a regular expression is refused; null: it is accepted. */
export function regexProblem(regex: string): string | null {
  const parsed = parseRegex(regex);
  return 'problem' in parsed ? `the regular expression ${parsed.problem}` : null;
}

/**
 * Returns an accepted expression in the syntax that RE2, PCRE2 and JavaScript share and read alike: sets of characters,
 * groups, alternatives, repetitions and anchors, without flags; groups keep their numbers. Text that it has only as escapes:
 * everything but letters, digits and `/ _ -`. Null if the expression is refused.
 */
export function portableRegex(regex: string): string | null {
  const parsed = parseRegex(regex);
  return 'problem' in parsed ? null : print(parsed.node);
}

function print(node: RegexNode): string {
  switch (node.kind) {
    case 'set':
      return printSet(node.set);
    case 'sequence':
      return node.items.map(print).join('');
    case 'choice':
      return `(?:${node.items.map(print).join('|')})`;
    case 'group':
      return `(${node.capture === null ? '?:' : ''}${print(node.item)})`;
    case 'repeat':
      return `${print(node.item)}${printBounds(node.low, node.high)}${node.lazy ? '?' : ''}`;
    case 'assertion':
      return { start: '^', end: '$', 'word-edge': '\\b', 'no-word-edge': '\\B' }[node.at];
  }
}

function printBounds(low: number, high: number): string {
  if (high === Number.POSITIVE_INFINITY) return low === 0 ? '*' : low === 1 ? '+' : `{${low},}`;
  if (low === 0 && high === 1) return '?';
  return low === high ? `{${low}}` : `{${low},${high}}`;
}

function printSet(set: CharacterSet): string {
  const [[from, to] = [0, 0]] = set;
  if (set.length === 1 && from === to) return printCharacter(from);
  return `[${set.map(([low, high]) => (low === high ? printCharacter(low) : `${printCharacter(low)}-${printCharacter(high)}`)).join('')}]`;
}

/** "-" is escaped too: it stands for a range in a class. */
function printCharacter(code: number): string {
  const character = String.fromCharCode(code);
  return /[A-Za-z0-9/_]/.test(character) ? character : `\\x${code.toString(16).padStart(2, '0')}`;
}
