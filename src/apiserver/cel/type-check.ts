import { UnsignedInt } from '@marcbachmann/cel-js/evaluator';
import { ownMember } from '../../lib/own-member.ts';
import { type Problem, positionOf } from './positions.ts';
import type { Signatures } from './signatures.ts';
import type { AstNode } from './syntax-tree.ts';
import {
  type Bindings,
  BOOL,
  BYTES,
  type CelType,
  DOUBLE,
  DYN,
  INT,
  isAssignable,
  isDyn,
  listOf,
  mapOf,
  NULL,
  optionalOf,
  STRING,
  substitute,
  typeName,
  typeOf,
  UINT,
} from './types.ts';

/** The knowledge of the checker besides the expression. */
export interface TypeContext {
  readonly signatures: Signatures;
  readonly variables: ReadonlyMap<string, CelType>;
  /** Functions without a signature: whether they fit their arguments is left to the evaluation. */
  readonly functions: ReadonlySet<string>;
}

export interface CheckedTypes {
  readonly result: CelType;
  readonly problems: readonly Problem[];
  /** The type of each part. */
  readonly types: ReadonlyMap<AstNode, CelType>;
}

const TYPE_NAMES = ['bool', 'int', 'uint', 'double', 'string', 'bytes', 'list', 'map', 'type', 'null_type'];

/** The first parts of qualified names: `google.protobuf.Timestamp`, `sets.contains()`. */
const QUALIFIERS = new Set(['format', 'google', 'optional', 'sets']);

type Scope = ReadonlyMap<string, CelType>;

/** The state of the check of one expression. */
interface Checker {
  readonly context: TypeContext;
  /** The type of each part. */
  readonly foundTypes: Map<AstNode, CelType>;
  /** Records a problem; the part with it may have any type. */
  report(at: number, message: string): CelType;
}

/**
 * Finds the types of an expression, before macros are expanded, and what does not fit. Source: cel-go
 * checker/checker.go. It knows less than upstream and accepts what it does not know.
 */
export function checkTypes(ast: AstNode, context: TypeContext): CheckedTypes {
  const problems: Problem[] = [];
  const checker: Checker = {
    context,
    foundTypes: new Map(),
    report(at, message) {
      problems.push({ at, message });
      return DYN;
    },
  };
  const result = check(checker, ast, context.variables);
  return { result, problems, types: checker.foundTypes };
}

function check(checker: Checker, node: AstNode, scope: Scope): CelType {
  const type = typed(checker, node, scope);
  checker.foundTypes.set(node, type);
  return type;
}

function typed(checker: Checker, node: AstNode, scope: Scope): CelType {
  const { op, args } = node;
  switch (op) {
    case 'value':
      return constantType(args);
    case 'id':
      return identifier(checker, node, scope);
    case '.':
    case '.?': {
      const [operand, field] = args as [AstNode, string];
      return select(checker, check(checker, operand, scope), field, positionOf(node), op === '.?');
    }
    case '[]':
    case '[?]':
      return resolve(
        checker,
        op === '[]' ? '_[_]' : '_[?_]',
        positionOf(node),
        types(checker, args as AstNode[], scope),
        false,
      );
    case 'list':
      return listOf(common(checker, args as AstNode[], scope));
    case 'map': {
      const entries = args as [AstNode, AstNode][];
      const keys = common(
        checker,
        entries.map(([key]) => key),
        scope,
      );
      return mapOf(
        keys,
        common(
          checker,
          entries.map(([, value]) => value),
          scope,
        ),
      );
    }
    case '&&':
    case '||':
      for (const operand of args as AstNode[]) expectBool(checker, operand, check(checker, operand, scope));
      return BOOL;
    case '?:':
      return resolve(checker, '_?_:_', positionOf(node), types(checker, args as AstNode[], scope), false);
    case '!_':
    case '-_':
      return resolve(checker, op, positionOf(node), [check(checker, args as AstNode, scope)], false);
    case 'call':
      return call(checker, node, scope);
    case 'rcall':
      return memberCall(checker, node, scope);
    case 'in':
      return resolve(checker, '@in', positionOf(node), types(checker, args as AstNode[], scope), false);
    default:
      return resolve(checker, `_${op}_`, positionOf(node), types(checker, args as AstNode[], scope), false);
  }
}

const types = (checker: Checker, nodes: readonly AstNode[], scope: Scope) =>
  nodes.map((node) => check(checker, node, scope));

function expectBool(checker: Checker, node: AstNode, type: CelType): void {
  if (!isAssignable(BOOL, type)) {
    checker.report(positionOf(node), `expected type 'bool' but found '${typeName(type)}'`);
  }
}

function identifier(checker: Checker, node: AstNode, scope: Scope): CelType {
  const name = String(node.args);
  const known = scope.get(name);
  if (known) return known;
  if (TYPE_NAMES.includes(name)) return typeOf(DYN);
  if (QUALIFIERS.has(name)) return DYN;
  return checker.report(node.start, `undeclared reference to '${name}' (in container '')`);
}

/** `isOptional`: whether a missing field is not an error. */
function select(checker: Checker, operand: CelType, field: string, at: number, isOptional: boolean): CelType {
  if (operand.kind === 'optional') {
    const found = select(checker, operand.value, field, at, false);
    return found.kind === 'optional' ? found : optionalOf(found);
  }
  const found = selected(checker, operand, field, at);
  return isOptional && found.kind !== 'optional' ? optionalOf(found) : found;
}

function selected(checker: Checker, operand: CelType, field: string, at: number): CelType {
  if (isDyn(operand) || operand.kind === 'type') return DYN;
  if (operand.kind === 'map') return operand.value;
  if (operand.kind === 'object') {
    return operand.fields.get(field) ?? checker.report(at, `undefined field '${field}'`);
  }
  return checker.report(at, `type '${typeName(operand)}' does not support field selection`);
}

/** Returns the type of all elements of a literal, which must not differ. */
function common(checker: Checker, nodes: readonly AstNode[], scope: Scope): CelType {
  let first: CelType | null = null;
  for (const node of nodes) {
    const type = check(checker, node, scope);
    if (first === null || isDyn(first)) first ??= type;
    else if (isAssignable(first, type)) continue;
    else if (isAssignable(type, first)) first = type;
    else {
      checker.report(positionOf(node), `expected type '${typeName(first)}' but found '${typeName(type)}'`);
    }
  }
  return first ?? DYN;
}

function call(checker: Checker, node: AstNode, scope: Scope): CelType {
  const [name, args] = node.args as [string, readonly AstNode[]];
  if (name === 'has') return has(checker, node, args, scope);
  return resolve(checker, name, positionOf(node), types(checker, args, scope), false);
}

function has(checker: Checker, node: AstNode, [operand]: readonly AstNode[], scope: Scope): CelType {
  if (operand?.op !== '.') return BOOL;
  const [receiver, field] = operand.args as [AstNode, string];
  select(checker, check(checker, receiver, scope), field, positionOf(node), false);
  return BOOL;
}

function memberCall(checker: Checker, node: AstNode, scope: Scope): CelType {
  const [name, receiver, args] = node.args as [string, AstNode, readonly AstNode[]];
  const at = positionOf(node);
  if (receiver.op === 'id' && !scope.has(String(receiver.args))) {
    const qualified = `${String(receiver.args)}.${name}`;
    if (checker.context.signatures.has(qualified))
      return resolve(checker, qualified, at, types(checker, args, scope), false);
  }
  const loop = ownMember(LOOPS, name);
  if (loop?.includes(args.length)) return comprehension(checker, name, receiver, args, at, scope);
  // Macros that declare names; the library decides whether it knows them.
  if (DECLARING.has(name) || loop !== undefined) return DYN;
  return resolve(checker, name, at, [check(checker, receiver, scope), ...types(checker, args, scope)], true);
}

function comprehension(
  checker: Checker,
  name: string,
  receiver: AstNode,
  args: readonly AstNode[],
  at: number,
  scope: Scope,
): CelType {
  const range = check(checker, receiver, scope);
  const item = itemType(range);
  if (item === null) {
    const message = `expression of type '${typeName(range)}' cannot be range of a comprehension (must be list, map, or dynamic)`;
    checker.report(positionOf(receiver), message);
  }
  const [variable, ...parts] = args;
  if (variable?.op !== 'id') return DYN;
  const inner = new Map([...scope, [String(variable.args), item ?? DYN]]);
  const [first = DYN, second] = types(checker, parts, inner);
  const [predicate] = parts;
  switch (name) {
    case 'all':
    case 'exists':
      if (predicate) expectBool(checker, predicate, first);
      return BOOL;
    case 'exists_one':
    case 'existsOne':
      resolve(checker, '_?_:_', at, [first, INT, INT], false);
      return BOOL;
    case 'filter': {
      const result = listOf(item ?? DYN);
      return resolve(checker, '_?_:_', at, [first, result, result], false);
    }
    default:
      if (second === undefined) return listOf(first);
      return resolve(checker, '_?_:_', at, [first, listOf(second), listOf(second)], false);
  }
}

/** Returns the result of a function or an operator for arguments of these types. */
function resolve(
  checker: Checker,
  name: string,
  at: number,
  given: readonly CelType[],
  isMember: boolean,
): CelType {
  const signatures = checker.context.signatures.get(name);
  if (!signatures) {
    if (checker.context.functions.has(name)) return DYN;
    return checker.report(at, `undeclared reference to '${name}' (in container '')`);
  }
  let result: CelType | null = null;
  for (const one of signatures) {
    const bindings: Bindings = new Map();
    const fits =
      one.isMember === isMember &&
      one.args.length === given.length &&
      one.args.every((arg, i) => isAssignable(arg, given[i] ?? DYN, bindings));
    if (!fits) continue;
    const found = substitute(one.result, bindings);
    if (result !== null && typeName(result) !== typeName(found)) return DYN;
    result = found;
  }
  if (result !== null) return result;
  const names = given.map(typeName);
  const applied = isMember ? `${names[0]}.(${names.slice(1).join(', ')})` : `(${names.join(', ')})`;
  return checker.report(at, `found no matching overload for '${name}' applied to '${applied}'`);
}

/** Loops, with the numbers of arguments that the checker understands. */
const LOOPS: Readonly<Record<string, readonly number[]>> = {
  all: [2],
  exists: [2],
  exists_one: [2],
  existsOne: [2],
  filter: [2],
  map: [2, 3],
};
const DECLARING = new Set(['optMap', 'optFlatMap', 'transformList', 'transformMap', 'transformMapEntry']);

/** Returns the type of a loop's variable; null if the value has no items. */
function itemType(range: CelType): CelType | null {
  if (isDyn(range)) return DYN;
  if (range.kind === 'list') return range.item;
  return range.kind === 'map' ? range.key : null;
}

function constantType(value: unknown): CelType {
  switch (typeof value) {
    case 'bigint':
      return INT;
    case 'number':
      return DOUBLE;
    case 'string':
      return STRING;
    case 'boolean':
      return BOOL;
    default:
      if (value === null) return NULL;
      if (value instanceof Uint8Array) return BYTES;
      return value instanceof UnsignedInt ? UINT : DYN;
  }
}
