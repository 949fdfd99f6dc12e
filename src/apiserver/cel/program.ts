import { Environment } from '@marcbachmann/cel-js';
import { messageOf } from '../../lib/errors.ts';
import { registerKubernetesFunctions } from './functions.ts';
import { adaptTree } from './syntax-tree.ts';

/** A compiled CEL expression. */
export interface Program {
  /** "bool", "string", "dyn", …: the type of the result, if known. */
  readonly type: string;
  /**
   * Evaluates the expression. Integers are bigint. Throws Error with the cause: a missing member, an operation that the
   * values do not support, an expression that would take too long.
   */
  evaluate(variables: Readonly<Record<string, unknown>>): unknown;
}

/** Compiles CEL expressions over named variables, some of which have a type; the others are dynamic. */
export interface Compiler {
  /** Throws Error that describes the problem in the expression. */
  compile(expression: string): Program;
}

/**
 * Maximum number of steps of one evaluation; upstream limits an expression's cost similarly
 * (k8s.io/apiserver/pkg/apis/cel).
 */
const MAX_STEPS = 1_000_000;

/**
 * Creates a compiler with Kubernetes' function libraries. Loops are bounded before evaluation: the size of the largest
 * collection among the variables, to the power of the nesting depth of the expression's loops, must not exceed a
 * million. `extend` registers more functions.
 */
export function createCompiler(
  variables: readonly string[],
  extend: (environment: Environment) => void = () => {},
): Compiler {
  let made: Environment | undefined;
  // Made for the first expression: it takes milliseconds, and most servers compile none.
  const environment = () => {
    if (made) return made;
    made = registerKubernetesFunctions(
      new Environment({
        enableOptionalTypes: true,
        homogeneousAggregateLiterals: false,
        limits: {
          maxAstNodes: 10_000,
          maxDepth: 100,
          maxListElements: 1000,
          maxMapEntries: 1000,
          maxCallArguments: 32,
        },
      }),
    );
    extend(made);
    for (const name of variables) made.registerVariable(name, 'dyn');
    return made;
  };
  return {
    compile(expression) {
      const parsed = environment().parse(expression);
      adaptTree(parsed.ast);
      const checked = parsed.check();
      if (!checked.valid) throw new Error(firstLine(messageOf(checked.error)));
      const depth = loopDepth(parsed.ast);
      return {
        type: String(checked.type ?? 'dyn'),
        evaluate(values) {
          if (depth > 1 && largestCollection(values) ** depth > MAX_STEPS) {
            throw new Error('the expression would take too many steps for values of this size');
          }
          try {
            return parsed(values as Record<string, unknown>);
          } catch (error) {
            throw new Error(firstLine(messageOf(error)), { cause: error });
          }
        },
      };
    },
  };
}

const firstLine = (text: string) => text.split('\n', 1)[0] ?? text;

const LOOPS = new Set(['all', 'exists', 'exists_one', 'map', 'filter']);

/** Returns the nesting depth of an expression's loops. */
function loopDepth(node: unknown): number {
  if (Array.isArray(node)) return Math.max(0, ...node.map(loopDepth));
  if (typeof node !== 'object' || node === null || !('op' in node)) return 0;
  const { op, args } = node as { op: unknown; args: unknown };
  if (op !== 'rcall' || !Array.isArray(args)) return loopDepth(args);
  const [name, receiver, body] = args as [string, unknown, unknown];
  return Math.max(loopDepth(receiver), loopDepth(body) + (LOOPS.has(name) ? 1 : 0));
}

function largestCollection(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  const members = Array.isArray(value) ? value : Object.values(value);
  return members.reduce<number>(
    (largest, member) => Math.max(largest, largestCollection(member)),
    members.length,
  );
}
