import { messageOf } from '../../lib/errors.ts';
import { registerAuthorizer } from './authorizer-functions.ts';
import { CelError } from './cel-error.ts';
import { expandObjectLiterals, registerObjectLiterals } from './object-literals.ts';
import { type Compiler, createCompiler } from './program.ts';
import { toCel } from './request-values.ts';
import type { CelType } from './types.ts';

/** A compiled expression about a request. */
export interface RequestProgram {
  /** "bool", "Object", "list<JSONPatch>", "dyn": the type of the result, if known. */
  readonly type: string;
  /**
   * Evaluates with these variables, decoded JSON or CEL values; calls the authorizer if the expression does. Resolves
   * to a CEL value (integers are bigint). Throws CelError for an error of the expression.
   */
  evaluate(variables: Readonly<Record<string, unknown>>): Promise<unknown>;
}

/** Compiled expressions by their text. */
export interface RequestPrograms {
  /** Throws CelError for an invalid expression. */
  compile(expression: string): RequestProgram;
  /** Returns the type errors of a valid expression in the words of cel-go; null if there are none. */
  typeErrors(expression: string, types: ReadonlyMap<string, CelType>): string | null;
}

const MAX_PROGRAMS = 5000;

/** Compiles expressions of policies and match conditions over these variables. */
export function createRequestPrograms(variables: readonly string[]): RequestPrograms {
  return keepPrograms(createCompiler(variables, registerAuthorizer), (expression) => expression);
}

/** Like `createRequestPrograms`, but the expressions may construct objects and JSON patches. */
export function createMutationPrograms(variables: readonly string[]): RequestPrograms {
  const compiler = createCompiler(variables, (environment) => {
    registerAuthorizer(environment);
    registerObjectLiterals(environment);
  });
  return keepPrograms(compiler, expandObjectLiterals);
}

function keepPrograms(compiler: Compiler, prepare: (expression: string) => string): RequestPrograms {
  const programs = new Map<string, RequestProgram>();
  return {
    compile(expression) {
      let program = programs.get(expression);
      if (!program) {
        program = compile(compiler, prepare(expression));
        if (programs.size >= MAX_PROGRAMS) programs.clear();
        programs.set(expression, program);
      }
      return program;
    },
    typeErrors(expression, types) {
      try {
        compiler.compile(prepare(expression), types);
        return null;
      } catch (error) {
        return messageOf(error);
      }
    },
  };
}

function compile(compiler: Compiler, expression: string): RequestProgram {
  const program = orCelError(() => compiler.compile(expression));
  return {
    type: program.type,
    async evaluate(variables) {
      const values = Object.fromEntries(
        Object.entries(variables).map(([name, value]) => [name, toCel(value)]),
      );
      try {
        return await program.evaluate(values);
      } catch (error) {
        throw new CelError(firstLine(error));
      }
    },
  };
}

function orCelError<Value>(make: () => Value): Value {
  try {
    return make();
  } catch (error) {
    throw new CelError(firstLine(error));
  }
}

const firstLine = (error: unknown): string => messageOf(error).split('\n')[0] ?? '';
