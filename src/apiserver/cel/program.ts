import { Environment } from '@marcbachmann/cel-js';
import { messageOf } from '../../lib/errors.ts';
import { estimateCost } from './cost-estimate.ts';
import { CostError, createMeter, isExceeded, type Meter, meterTree, withMeter } from './cost-meter.ts';
import { registerKubernetesFunctions } from './functions.ts';
import { describeProblems } from './positions.ts';
import type { ValueSize } from './schema-size.ts';
import { parseSignatures } from './signatures.ts';
import { adaptTree, asNode, visitNodes } from './syntax-tree.ts';
import { type CheckedTypes, checkTypes, type TypeContext } from './type-check.ts';
import { type CelType, typeName } from './types.ts';

/** A compiled CEL expression. */
export interface Program {
  /** "bool", "string", "dyn", …: the type of the result, if known. */
  readonly type: string;
  /** The identifiers in the expression: variables, and the names that its loops give their items. */
  readonly names: ReadonlySet<string>;
  /** Returns the most that an evaluation costs for variables of this size; 0 if their types are not known. */
  maxCost(size: ValueSize): number;
  /**
   * Evaluates the expression. Integers are bigint. Throws Error with the cause: a missing member, an operation that the
   * values do not support; CostError if it costs more than the meter's limit, which is the limit of one call if absent.
   * Returns a promise if the expression asks the authorizer.
   */
  evaluate(variables: Readonly<Record<string, unknown>>, meter?: Meter): unknown;
}

/** Compiles CEL expressions over named variables, some of which have a type; the others are dynamic. */
export interface Compiler {
  /**
   * Throws Error that describes the problem in the expression. `types`: of the variables, in the words of upstream's
   * checker; without them, the variables are dynamic.
   */
  compile(expression: string, types?: ReadonlyMap<string, CelType>): Program;
}

/** Creates a compiler with Kubernetes' function libraries. `extend` registers more functions. */
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
  let known: Pick<TypeContext, 'signatures' | 'functions'> | undefined;
  const findTypes = (ast: unknown, types: ReadonlyMap<string, CelType>): CheckedTypes | null => {
    const root = asNode(ast);
    if (!root) return null;
    known ??= {
      signatures: parseSignatures(),
      functions: new Set(
        environment()
          .getDefinitions()
          .functions.map(({ name }) => name),
      ),
    };
    const checked = checkTypes(root, { ...known, variables: types });
    if (checked.problems.length > 0) throw new Error(describeProblems(root.input, checked.problems));
    return checked;
  };
  const parse = (expression: string) => {
    try {
      return environment().parse(expression);
    } catch (error) {
      throw new Error(syntaxError(expression, error), { cause: error });
    }
  };
  return {
    compile(expression, variableTypes) {
      const parsed = parse(expression);
      const found = variableTypes ? findTypes(parsed.ast, variableTypes) : null;
      adaptTree(parsed.ast);
      const checked = parsed.check();
      if (!checked.valid) throw new Error(firstLine(messageOf(checked.error)));
      meterTree(parsed.ast);
      const names = new Set<string>();
      visitNodes(parsed.ast, ({ op, args }) => {
        if (op === 'id') names.add(String(args));
      });
      return {
        type: found ? typeName(found.result) : String(checked.type ?? 'dyn'),
        names,
        maxCost(size) {
          const root = asNode(parsed.ast);
          return root && found ? estimateCost(root, size, found.types) : 0;
        },
        evaluate(values, meter = createMeter()) {
          const settle = (result: unknown) => {
            if (isExceeded(meter)) throw new CostError();
            return result;
          };
          const fail = (error: unknown): never => {
            if (isExceeded(meter)) throw new CostError();
            throw new Error(inWordsOfCelGo(firstLine(messageOf(error))), { cause: error });
          };
          let result: unknown;
          try {
            result = parsed(withMeter(values, meter));
          } catch (error) {
            return fail(error);
          }
          return result instanceof Promise ? result.then(settle, fail) : settle(result);
        },
      };
    },
  };
}

const firstLine = (text: string) => text.split('\n', 1)[0] ?? text;

function inWordsOfCelGo(message: string): string {
  return message
    .replace(/^No such key: index out of bounds, index (-?\d+) .*$/, 'index out of bounds: $1')
    .replace(/^No such key: /, 'no such key: ');
}

/** Returns a parser's error with its place, as cel-go shows it. */
function syntaxError(expression: string, error: unknown): string {
  const { summary, range } = error as { summary?: string; range?: { start: number } };
  if (summary === undefined || range === undefined) return firstLine(messageOf(error));
  return describeProblems(expression, [{ at: range.start, message: `Syntax error: ${summary}` }]);
}
