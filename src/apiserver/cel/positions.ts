import type { AstNode } from './syntax-tree.ts';

/** A problem at a place in an expression. */
export interface Problem {
  /** The index of the character. */
  readonly at: number;
  readonly message: string;
}

/** Returns the index of the character by which cel-go's parser places a node: the operator, the dot, the bracket. */
export function positionOf(node: AstNode): number {
  const { op, args, input } = node;
  const operands = Array.isArray(args) ? args : [args];
  switch (op) {
    case 'value':
    case 'id':
    case 'list':
    case 'map':
    case '!_':
    case '-_':
      return node.start;
    case '.':
    case '.?':
      return seek(input, (operands[0] as AstNode).end, '.');
    case '[]':
    case '[?]':
      return seek(input, (operands[0] as AstNode).end, '[');
    case 'call':
      return seek(input, node.start + String(operands[0]).length, '(');
    case 'rcall':
      return seek(input, seek(input, (operands[1] as AstNode).end, '.'), '(');
    case '?:':
      return seek(input, (operands[0] as AstNode).end, '?');
    default:
      return seek(input, (operands[0] as AstNode).end, op);
  }
}

/** Finds a token after the end of an operand: parentheses, spaces and comments may come before. */
function seek(input: string, from: number, token: string): number {
  let at = from;
  while (at < input.length && !input.startsWith(token, at)) {
    if (input.startsWith('//', at)) {
      const end = input.indexOf('\n', at);
      at = end === -1 ? input.length : end;
    } else at++;
  }
  return at;
}

/** Writes problems as cel-go does, in the order of their places. Source: cel-go common/errors.go. */
export function describeProblems(input: string, problems: readonly Problem[]): string {
  const lines = input.split('\n');
  return [...problems]
    .sort((a, b) => a.at - b.at)
    .map(({ at, message }) => {
      const before = input.slice(0, at).split('\n');
      const column = before.at(-1)?.length ?? 0;
      const line = lines[before.length - 1] ?? '';
      return `ERROR: <input>:${before.length}:${column + 1}: ${message}\n | ${line}\n | ${'.'.repeat(column)}^`;
    })
    .join('\n');
}
