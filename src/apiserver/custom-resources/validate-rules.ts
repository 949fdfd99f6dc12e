import { messageOf } from '../../lib/errors.ts';
import { type Compiler, createCompiler, type Program } from '../cel/program.ts';
import { MAX_REQUEST, schemaSize } from '../cel/schema-size.ts';
import { schemaType } from '../cel/schema-type.ts';
import { product } from '../cel/traversal-cost.ts';
import { type CelType, optionalOf } from '../cel/types.ts';
import { isObject } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import type { StructuralSchema, ValidationRule } from './structural-schema.ts';

const REASONS = ['FieldValueDuplicate', 'FieldValueForbidden', 'FieldValueInvalid', 'FieldValueRequired'];

/** Checks what does not depend on the expressions of a schema's rules. */
export function checkRuleTexts(schema: StructuralSchema, path: string): FieldError[] {
  return (schema['x-kubernetes-validations'] ?? []).flatMap((rule, index) =>
    checkTexts(rule, schema, `${path}.x-kubernetes-validations[${index}]`),
  );
}

/**
 * Checks the expressions of the rules in a valid schema. Source: apiextensions-apiserver/pkg/apis/apiextensions/validation,
 * ValidateCustomResourceDefinitionOpenAPISchema. `stored`: the definition before an update, null for a new one. An
 * expression that is stored already may refer to what its schema does not have: earlier versions accepted it.
 */
export function checkExpressions(schema: StructuralSchema, path: string, stored: unknown): FieldError[] {
  const known = new Set<string>();
  collectExpressions(stored, known);
  const compiler = createCompiler(['self', 'oldSelf']);
  const errors: FieldError[] = [];
  const costs: ExpressionCost[] = [];
  const visit = (place: string, one: StructuralSchema, context: VisitContext): void => {
    const { isResource, isNested, cardinality, unmatched } = context;
    const rules = one['x-kubernetes-validations'] ?? [];
    // Schemas in allOf, anyOf, oneOf and not do not say the type of values.
    const self = rules.length === 0 || isNested ? null : schemaType(one, isResource);
    const size = self && schemaSize(one, isResource);
    const times = size ? (cardinality ?? Math.floor(MAX_REQUEST / (size.minBytes + 1))) : 1;
    for (const [index, rule] of rules.entries()) {
      const isKnown = known.has(rule.rule);
      const compile = (expression: string) => {
        const types = self && !known.has(expression) ? variableTypes(self, rule) : undefined;
        return compiled(compiler, expression, types);
      };
      const estimate = (program: Program, field: string, name: string, count: number) => {
        const cost = size ? product(program.maxCost(size), count) : 0;
        const at = `${place}.x-kubernetes-validations[${index}].${field}`;
        costs.push({ place: at, cost });
        return cost > EXPRESSION_LIMIT ? [forbidden(at, excess(name, cost, EXPRESSION_LIMIT))] : [];
      };
      errors.push(
        ...checkRule(
          rule,
          `${place}.x-kubernetes-validations[${index}]`,
          isKnown ? null : unmatched,
          compile,
          {
            rule: (program) => estimate(program, 'rule', 'estimated rule cost', times),
            message: (program) =>
              estimate(program, 'messageExpression', 'estimated messageExpression cost', 1),
          },
        ),
      );
    }
    const below = cardinality === null ? null : multiplied(cardinality, elementsOf(one));
    for (const [name, member, nested] of membersOf(one)) {
      visit(`${place}.${name}`, member, {
        isResource: member['x-kubernetes-embedded-resource'] === true,
        isNested: isNested || nested,
        cardinality: below,
        unmatched: unmatched ?? (nested || matchesOld(one) ? null : place),
      });
    }
  };
  visit(path, schema, { isResource: true, isNested: false, cardinality: 1, unmatched: null });
  return [...errors, ...totalExcess(path, costs)];
}

interface VisitContext {
  readonly isResource: boolean;
  readonly isNested: boolean;
  /** How many values of the schema an object can have; null if nothing limits it. */
  readonly cardinality: number | null;
  /** The path of a schema above whose members have no old values: of a list without keys; null if there is none. */
  readonly unmatched: string | null;
}

/** Reports whether the members of an updated value have old ones: the items of a list only by their keys. */
const matchesOld = (schema: StructuralSchema): boolean =>
  schema.type !== 'array' || schema['x-kubernetes-list-type'] === 'map';

interface ExpressionCost {
  readonly place: string;
  readonly cost: number;
}

/** The most that a rule may cost by its estimate, for all values of an object. */
const EXPRESSION_LIMIT = 10_000_000;

/** The most that all rules of a schema may cost by their estimates. */
const SCHEMA_LIMIT = 100_000_000;

/** The least cost of an expression that is named if all of them cost too much. */
const MENTIONED_COST = SCHEMA_LIMIT / 100;

/** Returns how many values a schema has for each of its own; null if it does not limit them. */
function elementsOf({
  type,
  additionalProperties,
  maxProperties,
  maxItems,
}: StructuralSchema): number | null {
  if (type === 'array') return maxItems ?? null;
  return type === 'object' && additionalProperties !== undefined ? (maxProperties ?? null) : 1;
}

const multiplied = (count: number, factor: number | null): number | null =>
  factor === null ? null : count * factor;

function excess(name: string, cost: number, limit: number): string {
  const factor = cost / limit;
  const shown = factor > 100 ? 'more than 100x' : `${factor.toFixed(factor < 1.5 ? 6 : 1)}x`;
  return `${name} exceeds budget by factor of ${shown} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)`;
}

/** Names the most expensive expressions of a schema whose rules cost too much together. */
function totalExcess(path: string, costs: readonly ExpressionCost[]): FieldError[] {
  const total = costs.reduce((sum, { cost }) => sum + cost, 0);
  if (total <= SCHEMA_LIMIT) return [];
  const most = costs
    .filter(({ cost }) => cost >= MENTIONED_COST)
    .sort((a, b) => b.cost - a.cost)
    .slice(0, 4);
  const name = 'x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema';
  return [
    ...most.map(({ place }) =>
      forbidden(
        place,
        'contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema',
      ),
    ),
    forbidden(path, excess(name, total, SCHEMA_LIMIT)),
  ];
}

/** Returns the schemas within a schema, by their paths; `isNested`: whether they check its own values. */
function membersOf(schema: StructuralSchema): [path: string, schema: StructuralSchema, isNested: boolean][] {
  const { properties = {}, additionalProperties, items, not } = schema;
  const members: [string, StructuralSchema, boolean][] = [];
  for (const [name, one] of Object.entries(properties)) members.push([`properties[${name}]`, one, false]);
  if (typeof additionalProperties === 'object') {
    members.push(['additionalProperties', additionalProperties, false]);
  }
  if (items) members.push(['items', items, false]);
  for (const word of ['allOf', 'anyOf', 'oneOf'] as const) {
    for (const [index, one] of (schema[word] ?? []).entries()) members.push([`${word}[${index}]`, one, true]);
  }
  if (not) members.push(['not', not, true]);
  return members;
}

function collectExpressions(value: unknown, found: Set<string>): void {
  if (Array.isArray(value)) for (const item of value) collectExpressions(item, found);
  else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      if ((name === 'rule' || name === 'messageExpression') && typeof member === 'string') found.add(member);
      else collectExpressions(member, found);
    }
  }
}

const variableTypes = (self: CelType, { optionalOldSelf }: ValidationRule) =>
  new Map([
    ['self', self],
    ['oldSelf', optionalOldSelf ? optionalOf(self) : self],
  ]);

/** Returns the problem as a text if there is one. */
function compiled(
  compiler: Compiler,
  expression: string,
  types: ReadonlyMap<string, CelType> | undefined,
): Program | string {
  try {
    return compiler.compile(expression, types);
  } catch (error) {
    return messageOf(error);
  }
}

function checkRule(
  rule: ValidationRule,
  place: string,
  unmatched: string | null,
  compile: (expression: string) => Program | string,
  costOf: Readonly<Record<'rule' | 'message', (program: Program) => FieldError[]>>,
): FieldError[] {
  const errors: FieldError[] = [];
  const program = compile(rule.rule);
  const wrong = (field: string, detail: string) =>
    errors.push(ruleInvalid(`${place}.${field}`, rule, detail));
  if (typeof program === 'string') wrong('rule', `compilation failed: ${program}`);
  else if (!mayBe(program, 'bool')) wrong('rule', 'cel expression must evaluate to a bool');
  else errors.push(...costOf.rule(program));
  if (rule.messageExpression?.trim()) {
    const message = compile(rule.messageExpression);
    if (typeof message === 'string') {
      wrong('messageExpression', `messageExpression compilation failed: ${message}`);
    } else if (!mayBe(message, 'string')) {
      wrong('messageExpression', 'messageExpression must evaluate to a string');
    } else errors.push(...costOf.message(message));
  }
  const readsOld = typeof program !== 'string' && program.names.has('oldSelf');
  if (readsOld && unmatched !== null) {
    const detail = `oldSelf cannot be used on the uncorrelatable portion of the schema within ${unmatched}`;
    errors.push(invalid(`${place}.rule`, rule.rule, detail));
  } else if (rule.optionalOldSelf !== undefined && !readsOld) {
    const detail = 'may not be set if oldSelf is not used in rule';
    errors.push(invalid(`${place}.optionalOldSelf`, rule.optionalOldSelf, detail));
  }
  return errors;
}

const mayBe = ({ type }: Program, wanted: string): boolean => type === wanted || type === 'dyn';

function checkTexts(rule: ValidationRule, schema: StructuralSchema, place: string): FieldError[] {
  if (!rule.rule?.trim()) return [required(`${place}.rule`, 'rule is not specified')];
  const { message, messageExpression, reason, fieldPath } = rule;
  const errors: FieldError[] = [];
  if (message && message.trim() === '') {
    errors.push(invalid(`${place}.message`, message, 'must be non-empty if specified'));
  } else if (message?.trim().includes('\n')) {
    errors.push(invalid(`${place}.message`, message, 'must not contain line breaks'));
  } else if (!message && rule.rule.trim().includes('\n')) {
    errors.push(required(`${place}.message`, 'message must be specified if rule contains line breaks'));
  }
  if (messageExpression && messageExpression.trim() === '') {
    const detail = 'messageExpression must be non-empty if specified';
    errors.push(required(`${place}.messageExpression`, detail));
  }
  if (fieldPath && !isFieldPath(fieldPath, schema)) {
    errors.push(invalid(`${place}.fieldPath`, fieldPath, 'must be a valid path'));
  }
  if (reason !== undefined && !REASONS.includes(reason)) {
    errors.push(notSupported(`${place}.reason`, reason, REASONS));
  }
  return errors;
}

const PATH_PART = /\.([^.[\]]+)|\['((?:[^'\\]|\\.)*)'\]/y;

/** Reports whether a path names a member that the schema has: `.spec.ports['http']`. */
function isFieldPath(path: string, schema: StructuralSchema): boolean {
  let at = 0;
  let current: StructuralSchema | undefined = schema;
  while (at < path.length) {
    PATH_PART.lastIndex = at;
    const found = PATH_PART.exec(path);
    if (!found || !current) return false;
    const name = found[1] ?? (found[2] ?? '').replace(/\\(.)/g, '$1');
    const { properties, additionalProperties } = current as StructuralSchema;
    if (properties) current = Object.hasOwn(properties, name) ? properties[name] : undefined;
    else current = typeof additionalProperties === 'object' ? additionalProperties : undefined;
    if (!current) return false;
    at += found[0].length;
  }
  return true;
}

/** Upstream shows the rule as the JSON of its Go value. */
function ruleInvalid(field: string, rule: ValidationRule, detail: string): FieldError {
  const shown = JSON.stringify({
    Rule: rule.rule,
    Message: rule.message ?? '',
    MessageExpression: rule.messageExpression ?? '',
    Reason: rule.reason ?? null,
    FieldPath: rule.fieldPath ?? '',
    OptionalOldSelf: rule.optionalOldSelf ?? null,
  }).replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return { field, reason: 'FieldValueInvalid', message: `Invalid value: ${shown}: ${detail}` };
}
