import { setOwnMember } from '../../lib/own-member.ts';
import { celMap } from './values.ts';

/** The parts of the library's syntax tree that are used here. */
export interface AstNode {
  readonly op: string;
  readonly args: unknown;
  /** The place in the text that an error names. */
  readonly pos: number;
  readonly start: number;
  readonly end: number;
  /** The text of the whole expression. */
  readonly input: string;
  readonly meta: {
    /** The expansion of a macro. */
    readonly alternate?: unknown;
    readonly macro?: Macro;
    check(checker: Checker, node: unknown, context: unknown): unknown;
    evaluate: Evaluate;
  };
  evaluate: Evaluate;
  /** Applies an operator or a function to its operands; known after the check. */
  handle(...operands: unknown[]): unknown;
}

export type Evaluate = (evaluator: Evaluator, node: unknown, context: unknown) => unknown;

/** A macro that evaluates its arguments itself. */
interface Macro {
  readonly args: readonly AstNode[];
  /** The parts of a name with fields, the last one first; known after the check. */
  readonly macroHasProps?: readonly AstNode[];
  typeCheck(checker: Checker, macro: Macro, context: unknown): unknown;
  evaluate(evaluator: Evaluator, macro: Macro, context: unknown): unknown;
}

interface Checker {
  check(node: AstNode, context: unknown): unknown;
  getType(name: 'bool' | 'dyn'): unknown;
}

export interface Evaluator {
  run(node: AstNode, context: unknown): unknown;
  debugType(value: unknown): {
    fieldLazy(value: unknown, field: string, node: AstNode, evaluator: Evaluator): unknown;
  };
}

/** The function that is called for `matches`, which the library has with JavaScript's syntax of patterns. */
export const MATCHES = 'matches_re2';

/**
 * Changes the tree of a parsed expression, before it is checked, where the library differs from CEL:
 *
 * `has()` takes any expression before its last field (cel-spec, "Macros"): `has(list[0].field)`; the library takes
 * names only, `has(a.b.field)`. `matches` has patterns of RE2's syntax. The library does not allow fields of what
 * `value()` gives, if the type of the optional value is not known. It drops "constructor", "prototype" and "__proto__" from
 * the keys of a map.
 */
export function adaptTree(ast: unknown): void {
  visitNodes(ast, (node) => {
    const { macro } = node.meta;
    if (macro && isCallOf(node, 'call', 'has')) widen(macro);
    if (isCallOf(node, 'rcall', 'matches') || isCallOf(node, 'call', 'matches')) {
      (node.args as unknown[])[0] = MATCHES;
    }
    if (isCallOf(node, 'rcall', 'value')) allowFields(node);
    if (node.op === 'map') keepKeys(node);
  });
}

function allowFields({ meta }: AstNode): void {
  const { check } = meta;
  meta.check = (checker, node, context) => {
    check(checker, node, context);
    return checker.getType('dyn');
  };
}

function keepKeys(node: AstNode): void {
  const entries = node.args as readonly (readonly [key: AstNode, value: AstNode])[];
  const isKept = ({ op, args: key }: AstNode) => op === 'value' && !DROPPED_KEYS.has(key);
  if (entries.every(([key]) => isKept(key))) return;
  const built = (parts: readonly (readonly [unknown, unknown])[]) => {
    const members: Record<string, unknown> = {};
    for (const [key, value] of parts) setOwnMember(members, String(key), value);
    return celMap(members);
  };
  const evaluate: Evaluate = (evaluator, _node, context) => {
    const parts = entries.map(([key, value]) => [
      evaluator.run(key, context),
      evaluator.run(value, context),
    ]) as [unknown, unknown][];
    return parts.flat().some((part) => part instanceof Promise)
      ? Promise.all(parts.map((part) => Promise.all(part))).then(built)
      : built(parts);
  };
  node.meta.evaluate = evaluate;
  node.evaluate = evaluate;
}

/** The library's safeFromEntries. */
const DROPPED_KEYS: ReadonlySet<unknown> = new Set(['constructor', 'prototype', '__proto__']);

/** Calls `visit` for each node of a tree, also for those that macros were expanded to. */
export function visitNodes(ast: unknown, visit: (node: AstNode) => void): void {
  const seen = new Set<object>();
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null || seen.has(value)) return;
    seen.add(value);
    if (!isNode(value)) {
      for (const part of Object.values(value)) walk(part);
      return;
    }
    visit(value);
    walk(value.args);
    walk(value.meta.alternate);
  };
  walk(ast);
}

export const isNode = (value: object): value is AstNode =>
  'op' in value && 'args' in value && 'meta' in value;
const isCallOf = (node: AstNode, op: string, name: string): boolean =>
  node.op === op && Array.isArray(node.args) && node.args[0] === name;

function widen(macro: Macro): void {
  const [operand] = macro.args;
  // Anything but a field is an error, of which the library says where it is.
  if (operand?.op !== '.' || isName(operand)) return;
  const [receiver, field] = operand.args as [AstNode, string];
  macro.typeCheck = (checker, _macro, context) => {
    checker.check(receiver, context);
    return checker.getType('bool');
  };
  macro.evaluate = (evaluator, _macro, context) => {
    const value = evaluator.run(receiver, context);
    return evaluator.debugType(value).fieldLazy(value, field, operand, evaluator) !== undefined;
  };
}

/** Reports whether an expression is a name with fields: `self.spec.host`, `self.?spec.host`. */
function isName(node: AstNode): boolean {
  if (node.op === 'id') return true;
  return (node.op === '.' || node.op === '.?') && isName((node.args as [AstNode, string])[0]);
}

/** Returns the root of a parsed expression; null for anything else. */
export const asNode = (ast: unknown): AstNode | null =>
  typeof ast === 'object' && ast !== null && isNode(ast) ? ast : null;
