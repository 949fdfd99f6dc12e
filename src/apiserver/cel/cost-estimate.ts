import { callEstimate } from './call-estimate.ts';
import type { Estimate } from './estimate.ts';
import type { ValueSize } from './schema-size.ts';
import type { AstNode } from './syntax-tree.ts';
import { product, traversal } from './traversal-cost.ts';
import { type CelType, DYN, isDyn } from './types.ts';
import { unescapedName } from './values.ts';

type Scope = ReadonlyMap<string, Pick<Estimate, 'place' | 'size'>>;

/** The facts about an expression before its estimate. */
interface Known {
  /** The sizes of the variables self and oldSelf. */
  readonly root: ValueSize;
  typeOf(node: AstNode): CelType;
}

/**
 * Estimates what the evaluation of an expression costs at most, by the sizes that the schema allows. `root`: of the
 * variables self and oldSelf; `types`: of each part, as the checker found them. Source: cel-go checker/cost.go, with
 * Kubernetes' limits. Where upstream's rules are not known here, the estimate is lower.
 */
export function estimateCost(ast: AstNode, root: ValueSize, types: ReadonlyMap<AstNode, CelType>): number {
  const known: Known = { root, typeOf: (node) => types.get(node) ?? DYN };
  return estimate(known, ast, new Map()).cost;
}

const made = (known: Known, node: AstNode, cost: number, more: Partial<Estimate> = {}): Estimate => ({
  cost,
  size: isScalar(known.typeOf(node)) ? 1 : Number.POSITIVE_INFINITY,
  itemSize: null,
  place: null,
  type: known.typeOf(node),
  constant: undefined,
  ...more,
});

const reading = (known: Known, node: AstNode, cost: number, place: ValueSize | null): Estimate =>
  made(known, node, cost, place ? { place, size: place.max } : {});

function estimate(known: Known, node: AstNode, scope: Scope): Estimate {
  const { op, args } = node;
  switch (op) {
    case 'value':
      return made(known, node, 0, { size: constantSize(args), constant: args });
    case 'id': {
      const local = scope.get(String(args));
      // Upstream takes the size of self for whatever is not a part of the object.
      if (!local) return reading(known, node, 1, known.root);
      return made(known, node, 1, { place: local.place, size: local.place?.max ?? local.size });
    }
    case '.': {
      const [operand, field] = args as [AstNode, string];
      return select(known, node, estimate(known, operand, scope), field);
    }
    case 'list':
    case 'map':
      return literal(known, node, scope);
    case '[]': {
      const [list, index] = (args as AstNode[]).map((one) => estimate(known, one, scope)) as [
        Estimate,
        Estimate,
      ];
      const place = list.place?.item ?? null;
      const read = reading(known, node, list.cost + index.cost + 1, place);
      return list.itemSize === null ? read : { ...read, size: list.itemSize };
    }
    case '&&':
    case '||': {
      const [left, right] = (args as AstNode[]).map((one) => estimate(known, one, scope)) as [
        Estimate,
        Estimate,
      ];
      return made(known, node, left.cost + right.cost);
    }
    case '?:':
      return conditional(
        known,
        node,
        (args as AstNode[]).map((one) => estimate(known, one, scope)),
      );
    case '-_':
      if ((args as AstNode).op === 'value') return made(known, node, 0, { size: 1 });
      return made(known, node, 1 + estimate(known, args as AstNode, scope).cost);
    case '!_':
      return made(known, node, 1 + estimate(known, args as AstNode, scope).cost);
    case 'call':
      return call(known, node, scope);
    case 'rcall':
      return memberCall(known, node, scope);
    case '.?': {
      const [operand] = args as [AstNode];
      return made(known, node, 1 + estimate(known, operand, scope).cost);
    }
    default:
      return operation(
        known,
        node,
        (args as AstNode[]).map((one) => estimate(known, one, scope)),
      );
  }
}

function select(known: Known, node: AstNode, operand: Estimate, field: string): Estimate {
  const isCounted = operand.type.kind === 'object' || operand.type.kind === 'map';
  const place = operand.place?.fields?.get(unescapedName(field)) ?? null;
  return reading(known, node, operand.cost + (isCounted ? 1 : 0), place);
}

function literal(known: Known, node: AstNode, scope: Scope): Estimate {
  const isList = node.op === 'list';
  const elements = node.args as (AstNode | [AstNode, AstNode])[];
  let cost = isList ? 10 : 30;
  let itemSize = 0;
  for (const element of elements) {
    const parts = (Array.isArray(element) ? element : [element]).map((one) => estimate(known, one, scope));
    for (const part of parts) cost += part.cost;
    itemSize = Math.max(itemSize, parts.at(-1)?.size ?? 0);
  }
  return made(known, node, cost, { size: elements.length, itemSize });
}

function conditional(known: Known, node: AstNode, parts: readonly Estimate[]): Estimate {
  const [condition, yes, no] = parts as [Estimate, Estimate, Estimate];
  const isKnown = yes.itemSize !== null && no.itemSize !== null;
  return made(known, node, condition.cost + Math.max(yes.cost, no.cost), {
    size: Math.max(yes.size, no.size),
    itemSize: isKnown ? Math.max(yes.itemSize ?? 0, no.itemSize ?? 0) : null,
  });
}

function operation(known: Known, node: AstNode, operands: readonly Estimate[]): Estimate {
  const [left, right] = operands as [Estimate, Estimate];
  const sum = left.cost + right.cost;
  const isText = [left, right].some(({ type }) => isTextLike(type));
  switch (node.op) {
    case '==':
    case '!=':
      return made(known, node, sum + finite(traversal(Math.min(left.size, right.size)), left, right));
    case '<':
    case '<=':
    case '>':
    case '>=':
      return made(known, node, sum + (isText ? traversal(Math.min(left.size, right.size)) : 1));
    case 'in':
      return made(known, node, sum + (right.type.kind === 'list' ? right.size : 1));
    case '+': {
      if (left.type.kind !== 'list' && !isText) return made(known, node, sum + 1);
      const size = left.size + right.size;
      const isKnown = left.itemSize !== null && right.itemSize !== null;
      return made(known, node, sum + (isText ? traversal(size) : 1), {
        size,
        itemSize: isKnown ? Math.max(left.itemSize ?? 0, right.itemSize ?? 0) : null,
      });
    }
    default:
      return made(known, node, sum + 1);
  }
}

function call(known: Known, node: AstNode, scope: Scope): Estimate {
  const [name, args] = node.args as [string, AstNode[]];
  if (name === 'has') {
    const [field] = args;
    const operand = field?.op === '.' ? (field.args as [AstNode])[0] : undefined;
    return made(known, node, operand ? estimate(known, operand, scope).cost : 0);
  }
  const given = args.map((one) => estimate(known, one, scope));
  const [first] = given;
  if (name === 'dyn' && first)
    return made(known, node, 1 + first.cost, { size: first.size, itemSize: first.itemSize });
  return applied(known, node, name, null, given);
}

function applied(
  known: Known,
  node: AstNode,
  name: string,
  target: Estimate | null,
  args: readonly Estimate[],
): Estimate {
  const found = callEstimate(name, target, args);
  const cost = args.reduce((sum, one) => sum + one.cost, (target?.cost ?? 0) + found.cost);
  const { size, itemSize } = found;
  return made(known, node, cost, {
    ...(size === undefined ? {} : { size }),
    ...(itemSize === undefined ? {} : { itemSize }),
  });
}

function memberCall(known: Known, node: AstNode, scope: Scope): Estimate {
  const [name, receiver, args] = node.args as [string, AstNode, AstNode[]];
  if (receiver.op === 'id' && ['sets', 'optional'].includes(String(receiver.args))) {
    const given = args.map((one) => estimate(known, one, scope));
    return applied(known, node, `${String(receiver.args)}.${name}`, null, given);
  }
  const target = estimate(known, receiver, scope);
  const [variable] = args;
  if (LOOPS.has(name) && variable?.op === 'id') return loop(known, node, name, target, args, scope);
  return applied(
    known,
    node,
    name,
    target,
    args.map((one) => estimate(known, one, scope)),
  );
}

function loop(
  known: Known,
  node: AstNode,
  name: string,
  range: Estimate,
  args: readonly AstNode[],
  scope: Scope,
): Estimate {
  const [variable, ...parts] = args;
  const place = range.type.kind === 'map' ? range.place?.key : range.place?.item;
  const local = {
    place: place ?? (range.place ? null : known.root),
    size: range.itemSize ?? Number.POSITIVE_INFINITY,
  };
  const inner = new Map([...scope, [String(variable?.args), local]]);
  const [first, second] = parts.map((one) => estimate(known, one, inner));
  const predicate = first?.cost ?? 0;
  const times = (step: number) => range.cost + product(range.size, step);
  switch (name) {
    case 'all':
      return made(known, node, times(predicate + 3) + 1, { size: 1 });
    case 'exists':
      return made(known, node, times(predicate + 4) + 1, { size: 1 });
    case 'exists_one':
    case 'existsOne':
      return made(known, node, times(predicate + 2) + 2, { size: 1 });
    case 'filter':
      return made(known, node, times(predicate + 13) + 11, {
        size: range.size,
        itemSize: local.place?.max ?? local.size,
      });
    default: {
      const item = second ?? first;
      const step = second ? predicate + 12 + second.cost : predicate + 12;
      return made(known, node, times(step) + 11, { size: range.size, itemSize: item?.size ?? null });
    }
  }
}

const LOOPS = new Set(['all', 'exists', 'exists_one', 'existsOne', 'filter', 'map']);
const SCALARS = new Set(['bool', 'int', 'uint', 'double', 'timestamp', 'duration']);

function isScalar(type: CelType): boolean {
  return type.kind === 'optional' ? isScalar(type.value) : type.kind === 'simple' && SCALARS.has(type.name);
}

const isTextLike = (type: CelType): boolean =>
  type.kind === 'simple' && (type.name === 'string' || type.name === 'bytes');

/** Returns the cost of a comparison, which is one for values that have no size, such as quantities. */
function finite(cost: number, left: Estimate, right: Estimate): number {
  const isSized = (type: CelType) => isTextLike(type) || type.kind === 'list' || type.kind === 'map';
  return Number.isFinite(cost) || isSized(left.type) || isSized(right.type) || isDyn(left.type) ? cost : 1;
}

function constantSize(value: unknown): number {
  if (typeof value === 'string') return [...value].length;
  return value instanceof Uint8Array ? value.length : 1;
}
