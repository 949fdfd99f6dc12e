import { Optional } from '@marcbachmann/cel-js';
import { messageOf } from '../../lib/errors.ts';
import { CALL_LIMIT, CostError, createMeter } from '../cel/cost-meter.ts';
import { createCompiler, type Program } from '../cel/program.ts';
import { toCelValue } from '../cel/values.ts';
import type { CostBudget, EvaluateRule } from './object-rules.ts';
import type { ValidationRule } from './structural-schema.ts';

/** The longest message that a messageExpression may give (k8s.io/apiserver/pkg/apis/cel). */
const MAX_MESSAGE = 5120;

const OUT_OF_BUDGET =
  'validation failed due to running out of cost budget, no further validation rules will be run';

/**
 * Evaluates the CEL rules of custom resources' schemas (x-kubernetes-validations). A rule that names `oldSelf` is a
 * transition rule: it is evaluated only if there is an old value, or with `optionalOldSelf`. Source:
 * apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go.
 */
export function createRuleEvaluator(): EvaluateRule {
  const compiler = createCompiler(['self', 'oldSelf']);
  const programs = new Map<string, Program | string>();

  function programOf(expression: string): Program | string {
    let program = programs.get(expression);
    if (program === undefined) {
      try {
        program = compiler.compile(expression);
      } catch (error) {
        program = messageOf(error);
      }
      programs.set(expression, program);
    }
    return program;
  }

  return (rule, schema, value, old, budget) => {
    if (budget.left <= 0) return { message: OUT_OF_BUDGET, isFailure: true, isLast: true };
    const program = programOf(rule.rule);
    if (typeof program === 'string') return { message: `rule compile error: ${program}`, isFailure: true };
    const isTransition = program.names.has('oldSelf');
    if (isTransition && old === undefined && !rule.optionalOldSelf) return null;
    const variables: Record<string, unknown> = { self: toCelValue(value, schema) };
    if (isTransition || rule.messageExpression !== undefined) {
      const before = old === undefined ? undefined : toCelValue(old, schema);
      if (rule.optionalOldSelf) variables['oldSelf'] = Optional.of(before);
      else if (before !== undefined) variables['oldSelf'] = before;
    }
    const { result, failure, isPaid } = evaluate(program, variables, budget);
    if (!isPaid) return { message: OUT_OF_BUDGET, isFailure: true, isLast: true };
    if (failure instanceof CostError) {
      const message = `'${failure.message}': no further validation rules will be run due to call cost exceeds limit for rule: ${nameOf(rule)}`;
      return { message, isFailure: true, isLast: true };
    }
    if (failure !== undefined) {
      return { message: `${failureText(failure)} evaluating rule: ${nameOf(rule)}`, isFailure: true };
    }
    if (result === true) return { message: null };
    return { isTransition, ...evaluatedMessage(rule, variables, budget) };
  };

  /** Returns what the rule's messageExpression gives; its fixed message if that fails or is not usable as text. */
  function evaluatedMessage(
    rule: ValidationRule,
    variables: Record<string, unknown>,
    budget: CostBudget,
  ): { message: string; isLast?: boolean } {
    const fixed = { message: rule.message?.trim() || `failed rule: ${rule.rule.trim()}` };
    if (rule.messageExpression === undefined) return fixed;
    const program = programOf(rule.messageExpression);
    if (typeof program === 'string') return fixed;
    const { result, failure, isPaid } = evaluate(program, variables, budget);
    if (!isPaid) {
      const message =
        'messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run';
      return { message, isLast: true };
    }
    if (failure instanceof CostError) {
      const message = `no further validation rules will be run due to call cost exceeds limit for messageExpression: ${JSON.stringify(rule.messageExpression)}`;
      return { message, isLast: true };
    }
    const usable = typeof result === 'string' ? result.trim() : '';
    if (usable === '' || usable.length > MAX_MESSAGE || usable.includes('\n')) return fixed;
    return { message: usable };
  }
}

/** Evaluates within the limit of a call; `isPaid`: the object's budget was enough for what it cost. */
function evaluate(
  program: Program,
  variables: Readonly<Record<string, unknown>>,
  budget: CostBudget,
): { readonly result?: unknown; readonly failure?: unknown; readonly isPaid: boolean } {
  const meter = createMeter(CALL_LIMIT);
  try {
    const result = program.evaluate(variables, meter);
    return { result, isPaid: take(budget, meter.spent) };
  } catch (failure) {
    return { failure, isPaid: take(budget, meter.spent) };
  }
}

/** Takes the cost of an evaluation from an object's budget; false if it is not enough. */
function take(budget: CostBudget, cost: number): boolean {
  // An evaluation that was ended for its time has spent all.
  const spent = Math.min(cost, CALL_LIMIT + 1);
  if (spent > budget.left) {
    budget.left = -1;
    return false;
  }
  budget.left -= spent;
  return true;
}

/** Returns why an evaluation failed, as upstream's library words it. */
const failureText = (failure: unknown): string =>
  messageOf(failure).replace(
    /^(int|uint)\(\) type error: cannot convert to \1$/,
    "type conversion error from 'string' to '$1'",
  );

const nameOf = (rule: ValidationRule): string => rule.message?.trim() || rule.rule.trim();
