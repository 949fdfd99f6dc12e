import { messageOf } from '../../lib/errors.ts';
import { createCompiler, type Program } from '../cel/program.ts';
import { toCelValue } from '../cel/values.ts';
import { isTransitionRule, type ValidationRule } from './structural-schema.ts';
import type { EvaluateRule } from './validate-value.ts';

/**
 * Evaluates the CEL rules of custom resources' schemas (x-kubernetes-validations). A rule that names `oldSelf` is a
 * transition rule: it is evaluated only if there is an old value, or with `optionalOldSelf`. Source:
 * apiextensions-apiserver/pkg/apiserver/schema/cel.
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

  return (rule, schema, value, old) => {
    if (isTransitionRule(rule) && old === undefined && !rule.optionalOldSelf) return null;
    const program = programOf(rule.rule);
    if (typeof program === 'string') return { message: `rule compile error: ${program}` };
    const variables: Record<string, unknown> = { self: toCelValue(value, schema) };
    if (old !== undefined) variables['oldSelf'] = toCelValue(old, schema);
    try {
      if (program.evaluate(variables) === true) return { message: null };
    } catch (error) {
      return { message: `${messageOf(error)} evaluating rule: ${messageFor(rule)}` };
    }
    return { message: evaluatedMessage(rule, variables) };
  };

  function evaluatedMessage(rule: ValidationRule, variables: Record<string, unknown>): string {
    if (rule.messageExpression !== undefined) {
      const program = programOf(rule.messageExpression);
      try {
        const text = typeof program === 'string' ? '' : program.evaluate(variables);
        if (typeof text === 'string' && text.trim() !== '') return text;
      } catch {
        // Upstream uses the fixed message if the expression fails.
      }
    }
    return messageFor(rule);
  }
}

/** Returns the problem with a rule's expression; null if it is valid. */
export function ruleProblem(expression: string): string | null {
  try {
    createCompiler(['self', 'oldSelf']).compile(expression);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

const messageFor = (rule: ValidationRule): string => rule.message ?? `failed rule: ${rule.rule}`;
