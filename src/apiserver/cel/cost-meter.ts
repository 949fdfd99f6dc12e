import { callCost, operatorCost } from './call-cost.ts';
import { type AstNode, type Evaluate, type Evaluator, isNode, visitNodes } from './syntax-tree.ts';

/** The limit of one evaluation (k8s.io/apiserver/pkg/apis/cel, PerCallLimit). */
export const CALL_LIMIT = 1_000_000;

/**
 * The processor time of this thread after which an evaluation ends, whatever it cost: some operations that upstream
 * counts as one step take longer for large values, and nothing else is served meanwhile. It is not the time that passed:
 * on a busy machine, a rule within its limit would be refused.
 */
const MAX_MILLISECONDS = 2000;
const STEPS_BETWEEN_LOOKS = 64;

/** The cost of the evaluation of an expression. */
export interface Meter {
  readonly limit: number;
  spent: number;
  /** The processor time that this thread has used, in milliseconds. */
  readonly processorTime: () => number;
}

/** Creates the meter of one evaluation. */
export const createMeter = (limit = CALL_LIMIT, processorTime = threadTime): Meter => ({
  limit,
  spent: 0,
  processorTime,
});

function threadTime(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

export const isExceeded = ({ limit, spent }: Meter): boolean => spent > limit;

/** The error of an expression that costs more than its limit. */
export class CostError extends Error {
  override readonly name = 'CostError';
  constructor() {
    super('operation cancelled: actual cost limit exceeded');
  }
}

/** The member of an evaluation's variables that holds its meter; no expression can name it. */
const METER: unique symbol = Symbol('meter');

/**
 * The value that ends an evaluation. It is no Error, because loops of the library go on after an Error of one step: this value
 * becomes the loop's, which ends it.
 */
const ENDED: unique symbol = Symbol('ended');

interface Running extends Meter {
  steps: number;
  readonly deadline: number;
}

/** Returns the variables of an evaluation that is charged to `meter`. */
export function withMeter(
  variables: Readonly<Record<string, unknown>>,
  meter: Meter,
): Record<string, unknown> {
  const running: Running = Object.assign(meter, {
    steps: 0,
    deadline: meter.processorTime() + MAX_MILLISECONDS,
  });
  return Object.assign(Object.create(variables), { [METER]: running });
}

interface Context {
  getValue(name: symbol): unknown;
}

const meterOf = (context: unknown): Running => (context as Context).getValue(METER) as Running;

function charge(context: unknown, cost: number): void {
  const meter = meterOf(context);
  meter.spent += cost;
  if (++meter.steps % STEPS_BETWEEN_LOOKS === 0 && meter.processorTime() > meter.deadline) {
    meter.spent = Number.POSITIVE_INFINITY;
  }
  if (meter.spent > meter.limit) throw ENDED;
}

/**
 * Makes a checked tree charge each of its steps to the meter of the evaluation, as cel-go's tracker does
 * (interpreter/runtimecost.go). Macros are charged for the expressions that upstream expands them to.
 */
export function meterTree(ast: unknown): void {
  const free = new Set<unknown>();
  visitNodes(ast, (node) => {
    for (const part of attributeParts(node)) free.add(part);
  });
  visitNodes(ast, (node) => {
    const evaluate = evaluatorOf(node, free.has(node) ? 0 : 1);
    if (evaluate) node.evaluate = evaluate;
  });
}

const ATTRIBUTES = new Set(['id', '.', '.?', '[]', '[?]']);

/** Returns the parts of a node that upstream reads together with it: `key` of `map[key]`, `a` and `b` of `x ? a : b`. */
function attributeParts({ op, args }: AstNode): readonly AstNode[] {
  const parts = op === '[]' || op === '[?]' || op === '?:' ? (args as AstNode[]).slice(1) : [];
  return parts.filter((part) => ATTRIBUTES.has(part.op));
}

/** `read`: the cost of reading the attribute that the node is. */
function evaluatorOf(node: AstNode, read: number): Evaluate | null {
  const { alternate, macro } = node.meta;
  if (alternate) return isNode(alternate) && alternate.op === 'comprehension' ? loop(node, alternate) : null;
  if (macro) {
    // has() costs one step for each field of a name: the name's first part is charged when it is read.
    const fields = isHas(node) ? Math.max(0, (macro.macroHasProps?.length ?? 0) - 2) : 0;
    return (evaluator, _node, context) => {
      charge(context, fields);
      return macro.evaluate(evaluator, macro, context);
    };
  }
  const { evaluate } = node.meta;
  switch (node.op) {
    case 'id':
    case '.':
    case '.?':
    case '[]':
    case '[?]':
      return (evaluator, _node, context) => {
        charge(context, read);
        return evaluate(evaluator, node, context);
      };
    case '!_':
    case '-_':
      return (evaluator, _node, context) => {
        charge(context, 1);
        return evaluate(evaluator, node, context);
      };
    case 'list':
    case 'map': {
      if (isConstant(node)) return null;
      const cost = node.op === 'list' ? 10 : 30;
      return (evaluator, _node, context) => {
        charge(context, cost);
        return evaluate(evaluator, node, context);
      };
    }
    case 'call':
    case 'rcall':
      return call(node);
    default:
      return OPERATORS.has(node.op) ? operator(node) : null;
  }
}

const OPERATORS = new Set(['==', '!=', '<', '<=', '>', '>=', 'in', '+', '-', '*', '/', '%']);

/** Reports whether upstream computes a value when it compiles the expression. */
function isConstant(node: unknown): boolean {
  if (Array.isArray(node)) return node.every(isConstant);
  if (typeof node !== 'object' || node === null || !isNode(node)) return false;
  return node.op === 'value' || ((node.op === 'list' || node.op === 'map') && isConstant(node.args));
}

function operator(node: AstNode): Evaluate {
  const [left, right] = node.args as [AstNode, AstNode];
  const constant = node.op === 'in' && isConstant(right);
  return (evaluator, _node, context) => {
    const a = evaluator.run(left, context);
    const b = evaluator.run(right, context);
    charge(context, constant ? 0 : operatorCost(node.op, a, b));
    return node.handle(a, b, node, evaluator);
  };
}

/** Conversions, which upstream makes for constants when it compiles the expression. */
const CONVERSIONS = new Set(['bool', 'bytes', 'double', 'duration', 'int', 'string', 'timestamp', 'uint']);

function call(node: AstNode): Evaluate {
  const [name, ...rest] = node.args as [string, ...unknown[]];
  const isMember = node.op === 'rcall';
  const operands = rest.flat() as AstNode[];
  const invoke = (args: unknown, evaluator: Evaluator) =>
    isMember ? node.handle(args, evaluator, node) : node.handle(args, node, evaluator);
  const isConverted = !isMember && CONVERSIONS.has(name) && operands.every(isConstant);
  return (evaluator, _node, context) => {
    const args = operands.map((operand) => evaluator.run(operand, context));
    charge(context, isConverted ? 0 : callCost(name, args));
    // A call to the authorizer answers later.
    return invoke(args.some((arg) => arg instanceof Promise) ? Promise.all(args) : args, evaluator);
  };
}

const isHas = (node: AstNode): boolean => Array.isArray(node.args) && node.args[0] === 'has';

interface Comprehension {
  condition?: (value: unknown) => boolean;
  step: AstNode;
}

interface LoopCost {
  /** For each item, besides the parts that the author wrote. */
  readonly item: number;
  /** For each item that the condition of the loop selects. */
  readonly selected: number;
  /** For the result. */
  readonly result: number;
}

const APPEND: LoopCost = { item: 0, selected: 12, result: 1 };

/** The cost of upstream's expansion of a loop (cel-go parser/macro.go); `filter` also reads the item. */
const LOOPS: Readonly<Record<string, LoopCost>> = {
  all: { item: 3, selected: 0, result: 1 },
  exists: { item: 4, selected: 0, result: 1 },
  exists_one: { item: 0, selected: 2, result: 2 },
  existsOne: { item: 0, selected: 2, result: 2 },
  map: APPEND,
  filter: APPEND,
};

function loop(call: AstNode, node: AstNode): Evaluate {
  const [name] = call.args as [string];
  const { item, selected, result } = LOOPS[name] ?? APPEND;
  const comprehension = node.args as Comprehension;
  const { condition, step } = comprehension;
  if (condition) comprehension.condition = (value) => value !== ENDED && condition(value);
  // A step is `condition ? change : result`, of map() without a condition the change alone.
  const change = step.op === '?:' ? (step.args as AstNode[])[1] : step;
  chargeBefore(step, item);
  if (change && selected > 0) chargeBefore(change, change === step ? item + selected : selected);
  return (evaluator, _node, context) => {
    charge(context, result);
    const value = node.meta.evaluate(evaluator, node, context);
    charge(context, 0);
    return value;
  };
}

function chargeBefore(node: AstNode, cost: number): void {
  node.evaluate = (evaluator, _node, context) => {
    charge(context, cost);
    return node.meta.evaluate(evaluator, node, context);
  };
}
