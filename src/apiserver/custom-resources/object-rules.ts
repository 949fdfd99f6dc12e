import { ownMember } from '../../lib/own-member.ts';
import { equal, isObject } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, required } from '../status-error.ts';
import { memberPath, memberSchema, type StructuralSchema, type ValidationRule } from './structural-schema.ts';

/** The result of a CEL rule for a value. */
export interface RuleOutcome {
  /** Null if the rule is satisfied. */
  readonly message: string | null;
  /** Whether the rule could not be evaluated. */
  readonly isFailure?: boolean;
  /** Whether no further rules are evaluated for the object. */
  readonly isLast?: boolean;
  /** Whether the rule was violated and compares with the old value: it holds for an unchanged value too. */
  readonly isTransition?: boolean;
}

/** The remaining cost of all rules of an object. */
export interface CostBudget {
  left: number;
}

/** The budget of an object (k8s.io/apiserver/pkg/apis/cel, RuntimeCELCostBudget). */
const OBJECT_BUDGET = 10_000_000;

/** Evaluates a CEL rule; `old` is undefined for a new value. Returns null if the rule does not apply. */
export type EvaluateRule = (
  rule: ValidationRule,
  schema: StructuralSchema,
  value: unknown,
  old: unknown,
  budget: CostBudget,
) => RuleOutcome | null;

/** Returns what the rules of a schema find in an object; `old`: the stored object, undefined for a new one. */
export function ruleErrors(
  schema: StructuralSchema,
  value: unknown,
  old: unknown,
  evaluateRule: EvaluateRule,
): FieldError[] {
  const errors: FieldError[] = [];
  checkRules(schema, value, old, '', false, { evaluateRule, budget: { left: OBJECT_BUDGET }, errors });
  return errors;
}

interface RuleRun {
  readonly evaluateRule: EvaluateRule;
  readonly budget: CostBudget;
  readonly errors: FieldError[];
}

/**
 * Checks the rules of a value and its members; returns false if no further ones are to be checked. Rules of list items
 * compare with the old item only if keys identify it. A rule that an unchanged value violates, or a value within an
 * unchanged one, is not an error (KEP-4008, ratcheting); `unchanged`: whether the value is within one.
 */
function checkRules(
  schema: StructuralSchema,
  value: unknown,
  old: unknown,
  path: string,
  unchanged: boolean,
  run: RuleRun,
): boolean {
  if (value === undefined || value === null) return true;
  const rules = schema['x-kubernetes-validations'] ?? [];
  for (const rule of rules) {
    const outcome = run.evaluateRule(rule, schema, value, old, run.budget);
    if (!outcome || outcome.message === null) continue;
    const isRatcheted = outcome.isTransition === false && (unchanged || sameAs(old, value));
    if (!isRatcheted)
      run.errors.push(outcomeError(rule, value, outcome.message, outcome.isFailure ? schema : null, path));
    if (outcome.isLast) return false;
  }
  // Computed for a member without an old value only: an unchanged one is compared itself.
  let same: boolean | null = unchanged ? true : null;
  const below = (member: StructuralSchema, item: unknown, before: unknown, at: string) => {
    if (before === undefined) same ??= sameAs(old, value);
    return checkRules(member, item, before, at, unchanged || (before === undefined && same === true), run);
  };
  if (Array.isArray(value)) {
    const { items } = schema;
    return (
      !items ||
      value.every((item, index) => below(items, item, oldItem(schema, item, old), `${path}[${index}]`))
    );
  }
  if (!isObject(value)) return true;
  return Object.entries(value).every(([name, member]) => {
    const known = memberSchema(schema, name);
    const before = isObject(old) ? ownMember(old, name) : undefined;
    return !known || below(known, member, before, memberPath(schema, path, name));
  });
}

const sameAs = (old: unknown, value: unknown): boolean => old !== undefined && equal(value, old);

/**
 * `failed`: the schema of a rule that could not be evaluated. Upstream then shows the type, and otherwise the value unless
 * it has members.
 */
function outcomeError(
  rule: ValidationRule,
  value: unknown,
  message: string,
  failed: StructuralSchema | null,
  path: string,
): FieldError {
  if (failed) return invalid(path === '' ? '<nil>' : path, failed.type ?? '', message);
  const at = rule.fieldPath ? `${path}${rule.fieldPath}`.replace(/^\./, '') : path;
  const field = at === '' ? '<nil>' : at;
  const isScalar = typeof value !== 'object';
  switch (rule.reason) {
    case 'FieldValueForbidden':
      return forbidden(field, message);
    case 'FieldValueRequired':
      return required(field, message);
    case 'FieldValueDuplicate':
      return isScalar
        ? duplicate(field, value)
        : { field, reason: 'FieldValueDuplicate', message: 'Duplicate value' };
    default:
      return isScalar
        ? invalid(field, value, message)
        : { field, reason: 'FieldValueInvalid', message: `Invalid value: ${message}` };
  }
}

/** Returns the old item with the keys of an item of a list; undefined if the list has no keys, or it is new. */
export function oldItem(schema: StructuralSchema, item: unknown, old: unknown): unknown {
  const keys = schema['x-kubernetes-list-map-keys'] ?? [];
  if (schema['x-kubernetes-list-type'] !== 'map' || !Array.isArray(old) || !isObject(item)) return undefined;
  return old.find(
    (one) => isObject(one) && keys.every((key) => equal(ownMember(one, key), ownMember(item, key))),
  );
}
