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

/** What the checker knows besides the expression. */
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

/**
 * Finds the types of an expression, before macros are expanded, and what does not fit. Source: cel-go
 * checker/checker.go. It knows less than upstream and accepts what it does not know.
 */
export function checkTypes(ast: AstNode, context: TypeContext): CheckedTypes {
  const problems: Problem[] = [];
  const report = (at: number, message: string): CelType => {
    problems.push({ at, message });
    return DYN;
  };

  const found = new Map<AstNode, CelType>();
  function check(node: AstNode, scope: Scope): CelType {
    const type = typed(node, scope);
    found.set(node, type);
    return type;
  }

  function typed(node: AstNode, scope: Scope): CelType {
    const { op, args } = node;
    switch (op) {
      case 'value':
        return constantType(args);
      case 'id':
        return identifier(node, scope);
      case '.':
      case '.?': {
        const [operand, field] = args as [AstNode, string];
        return select(check(operand, scope), field, positionOf(node), op === '.?');
      }
      case '[]':
      case '[?]':
        return resolve(
          op === '[]' ? '_[_]' : '_[?_]',
          positionOf(node),
          types(args as AstNode[], scope),
          false,
        );
      case 'list':
        return listOf(common(args as AstNode[], scope));
      case 'map': {
        const entries = args as [AstNode, AstNode][];
        const keys = common(
          entries.map(([key]) => key),
          scope,
        );
        return mapOf(
          keys,
          common(
            entries.map(([, value]) => value),
            scope,
          ),
        );
      }
      case '&&':
      case '||':
        for (const operand of args as AstNode[]) expectBool(operand, check(operand, scope));
        return BOOL;
      case '?:':
        return resolve('_?_:_', positionOf(node), types(args as AstNode[], scope), false);
      case '!_':
      case '-_':
        return resolve(op, positionOf(node), [check(args as AstNode, scope)], false);
      case 'call':
        return call(node, scope);
      case 'rcall':
        return memberCall(node, scope);
      case 'in':
        return resolve('@in', positionOf(node), types(args as AstNode[], scope), false);
      default:
        return resolve(`_${op}_`, positionOf(node), types(args as AstNode[], scope), false);
    }
  }

  const types = (nodes: readonly AstNode[], scope: Scope) => nodes.map((node) => check(node, scope));

  function expectBool(node: AstNode, type: CelType): void {
    if (!isAssignable(BOOL, type)) {
      report(positionOf(node), `expected type 'bool' but found '${typeName(type)}'`);
    }
  }

  function identifier(node: AstNode, scope: Scope): CelType {
    const name = String(node.args);
    const known = scope.get(name);
    if (known) return known;
    if (TYPE_NAMES.includes(name)) return typeOf(DYN);
    if (QUALIFIERS.has(name)) return DYN;
    return report(node.start, `undeclared reference to '${name}' (in container '')`);
  }

  /** `isOptional`: whether a missing field is not an error. */
  function select(operand: CelType, field: string, at: number, isOptional: boolean): CelType {
    if (operand.kind === 'optional') {
      const found = select(operand.value, field, at, false);
      return found.kind === 'optional' ? found : optionalOf(found);
    }
    const found = selected(operand, field, at);
    return isOptional && found.kind !== 'optional' ? optionalOf(found) : found;
  }

  function selected(operand: CelType, field: string, at: number): CelType {
    if (isDyn(operand) || operand.kind === 'type') return DYN;
    if (operand.kind === 'map') return operand.value;
    if (operand.kind === 'object') {
      return operand.fields.get(field) ?? report(at, `undefined field '${field}'`);
    }
    return report(at, `type '${typeName(operand)}' does not support field selection`);
  }

  /** Returns the type of all elements of a literal, which must not differ. */
  function common(nodes: readonly AstNode[], scope: Scope): CelType {
    let first: CelType | null = null;
    for (const node of nodes) {
      const type = check(node, scope);
      if (first === null || isDyn(first)) first ??= type;
      else if (isAssignable(first, type)) continue;
      else if (isAssignable(type, first)) first = type;
      else {
        report(positionOf(node), `expected type '${typeName(first)}' but found '${typeName(type)}'`);
      }
    }
    return first ?? DYN;
  }

  function call(node: AstNode, scope: Scope): CelType {
    const [name, args] = node.args as [string, readonly AstNode[]];
    if (name === 'has') return has(node, args, scope);
    return resolve(name, positionOf(node), types(args, scope), false);
  }

  function has(node: AstNode, [operand]: readonly AstNode[], scope: Scope): CelType {
    if (operand?.op !== '.') return BOOL;
    const [receiver, field] = operand.args as [AstNode, string];
    select(check(receiver, scope), field, positionOf(node), false);
    return BOOL;
  }

  function memberCall(node: AstNode, scope: Scope): CelType {
    const [name, receiver, args] = node.args as [string, AstNode, readonly AstNode[]];
    const at = positionOf(node);
    if (receiver.op === 'id' && !scope.has(String(receiver.args))) {
      const qualified = `${String(receiver.args)}.${name}`;
      if (context.signatures.has(qualified)) return resolve(qualified, at, types(args, scope), false);
    }
    const loop = ownMember(LOOPS, name);
    if (loop?.includes(args.length)) return comprehension(name, receiver, args, at, scope);
    // Macros that declare names; the library decides whether it knows them.
    if (DECLARING.has(name) || loop !== undefined) return DYN;
    return resolve(name, at, [check(receiver, scope), ...types(args, scope)], true);
  }

  function comprehension(
    name: string,
    receiver: AstNode,
    args: readonly AstNode[],
    at: number,
    scope: Scope,
  ): CelType {
    const range = check(receiver, scope);
    const item = itemType(range);
    if (item === null) {
      const message = `expression of type '${typeName(range)}' cannot be range of a comprehension (must be list, map, or dynamic)`;
      report(positionOf(receiver), message);
    }
    const [variable, ...parts] = args;
    if (variable?.op !== 'id') return DYN;
    const inner = new Map([...scope, [String(variable.args), item ?? DYN]]);
    const [first = DYN, second] = types(parts, inner);
    const [predicate] = parts;
    switch (name) {
      case 'all':
      case 'exists':
        if (predicate) expectBool(predicate, first);
        return BOOL;
      case 'exists_one':
      case 'existsOne':
        resolve('_?_:_', at, [first, INT, INT], false);
        return BOOL;
      case 'filter': {
        const result = listOf(item ?? DYN);
        return resolve('_?_:_', at, [first, result, result], false);
      }
      default:
        if (second === undefined) return listOf(first);
        return resolve('_?_:_', at, [first, listOf(second), listOf(second)], false);
    }
  }

  /** Returns the result of a function or an operator for arguments of these types. */
  function resolve(name: string, at: number, given: readonly CelType[], isMember: boolean): CelType {
    const signatures = context.signatures.get(name);
    if (!signatures) {
      if (context.functions.has(name)) return DYN;
      return report(at, `undeclared reference to '${name}' (in container '')`);
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
    return report(at, `found no matching overload for '${name}' applied to '${applied}'`);
  }

  const result = check(ast, context.variables);
  return { result, problems, types: found };
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
