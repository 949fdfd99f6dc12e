import { ownMember } from '../../lib/own-member.ts';
import { equal, isObject, type JsonObject } from '../object.ts';
import { re2 } from '../re2.ts';
import type { FieldError } from '../status-error.ts';
import { duplicate, invalid, notSupported, required, tooMany } from '../status-error.ts';
import { isFormat } from './formats.ts';
import { type EvaluateRule, oldItem, ruleErrors } from './object-rules.ts';
import { hasRules, memberPath, memberSchema, type StructuralSchema, TYPE_META } from './structural-schema.ts';

export interface ValidateOptions {
  readonly evaluateRule?: EvaluateRule;
  /** The stored object, on updates. */
  readonly old?: unknown;
}

/**
 * Validates a value against its schema; on updates, without the values that do not change (KEP-4008): a definition that
 * became stricter does not prevent other changes of its objects. Errors have upstream's words (kube-openapi/pkg/validation/validate,
 * apiextensions-apiserver/pkg/apiserver/validation).
 */
export function validateValue(
  schema: StructuralSchema,
  value: unknown,
  options: ValidateOptions = {},
): FieldError[] {
  const errors: FieldError[] = [];
  check(schema, value, options.old, '', true, errors);
  return [...errors, ...listAndRuleErrors(schema, value, options, errors)];
}

/** Validates the status of an object; as upstream, the rules of the whole object apply. */
export function validateStatusValue(
  schema: StructuralSchema,
  object: JsonObject,
  options: ValidateOptions,
): FieldError[] {
  const own = schema.properties?.['status'];
  const found: FieldError[] = [];
  const { old } = options;
  if (own && object['status'] !== undefined)
    check(own, object['status'], isObject(old) ? old['status'] : undefined, '', false, found);
  const errors = found.map((error) => ({
    ...error,
    field: error.field === '<nil>' ? 'status' : `status.${error.field}`,
  }));
  return [...errors, ...listAndRuleErrors(schema, object, options, errors)];
}

/** What keeps rules from being evaluated: a value that may not have their type, or may be too large. */
const BLOCKING = [
  'FieldValueNotSupported',
  'FieldValueRequired',
  'FieldValueTooLong',
  'FieldValueTooMany',
  'FieldValueTypeInvalid',
];
const RULES_NOT_CHECKED: FieldError = {
  field: '<nil>',
  reason: 'FieldValueInvalid',
  message:
    'Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation',
};

/** Returns what lists with keys and rules find, after `errors` of the schema. */
function listAndRuleErrors(
  schema: StructuralSchema,
  value: unknown,
  { evaluateRule, old }: ValidateOptions,
  errors: readonly FieldError[],
): FieldError[] {
  const found: FieldError[] = [];
  checkLists(schema, value, '', found);
  // As upstream: lists that are invalid already do not prevent other changes.
  if (found.length > 0 && hasInvalidLists(schema, old)) found.length = 0;
  if (!evaluateRule) return found;
  if (![...errors, ...found].some(({ reason }) => BLOCKING.includes(reason)))
    return [...found, ...ruleErrors(schema, value, old, evaluateRule)];
  return hasRules(schema) ? [...found, RULES_NOT_CHECKED] : found;
}

const inBody = (path: string, value: unknown, what: string): FieldError => ({
  field: path,
  reason: 'FieldValueInvalid',
  message: `Invalid value: ${shown(value)}: ${path === '' ? '<nil>' : path} in body ${what}`,
});

const shown = (value: unknown): string => JSON.stringify(value) ?? 'null';

/** Returns the type as upstream names it in errors. */
function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}

function isOfType(schema: StructuralSchema, value: unknown): boolean {
  if (schema['x-kubernetes-int-or-string']) return typeof value === 'string' || Number.isInteger(value);
  switch (schema.type) {
    case undefined:
    case '':
      return true;
    case 'integer':
      return Number.isInteger(value);
    case 'number':
      return typeof value === 'number';
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isObject(value);
    default:
      return typeof value === schema.type;
  }
}

/** Adds the errors of a value; none if it equals the old one. */
function check(
  schema: StructuralSchema,
  value: unknown,
  old: unknown,
  path: string,
  isResource: boolean,
  errors: FieldError[],
): void {
  const count = errors.length;
  checkNew(schema, value, old, path, isResource, errors);
  if (errors.length > count && old !== undefined && equal(old, value)) errors.length = count;
}

function checkNew(
  schema: StructuralSchema,
  value: unknown,
  old: unknown,
  path: string,
  isResource: boolean,
  errors: FieldError[],
): void {
  if (value === null && schema.nullable === true) {
    // As upstream: an enum applies to null, too, unless it lists it.
    checkConstraints(schema, value, path, errors);
    return;
  }
  if (!isOfType(schema, value)) {
    const wanted = schema['x-kubernetes-int-or-string'] ? 'integer,string' : schema.type;
    errors.push({
      field: path === '' ? '<nil>' : path,
      reason: 'FieldValueTypeInvalid',
      message: `Invalid value: ${JSON.stringify(typeOf(value))}: ${path} in body must be of type ${wanted}: ${JSON.stringify(typeOf(value))}`,
    });
  }
  // As upstream, a value of another type is checked by what applies to its own.
  checkConstraints(schema, value, path, errors);
  if (value === null) return;
  checkCombinations(schema, value, path, errors);
  if (Array.isArray(value)) {
    const { items } = schema;
    if (!items) return;
    for (const [i, item] of value.entries())
      check(items, item, oldItem(schema, item, old), `${path}[${i}]`, false, errors);
  } else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      if (isResource && (TYPE_META as readonly string[]).includes(name)) continue;
      const known = memberSchema(schema, name);
      const embedded = known?.['x-kubernetes-embedded-resource'] === true;
      const before = isObject(old) ? ownMember(old, name) : undefined;
      if (known) check(known, member, before, path === '' ? name : `${path}.${name}`, embedded, errors);
    }
  }
}

/** Checks the constraints of the value itself, without its members. */
function checkConstraints(
  schema: StructuralSchema,
  value: unknown,
  path: string,
  errors: FieldError[],
): void {
  if (schema.enum && !schema.enum.some((choice) => equal(choice, value))) {
    errors.push(
      notSupported(
        path,
        value,
        schema.enum.map((choice) => (typeof choice === 'string' ? choice : shown(choice))),
      ),
    );
  }
  if (typeof value === 'number') checkNumber(schema, value, path, errors);
  else if (typeof value === 'string') checkText(schema, value, path, errors);
  else if (Array.isArray(value)) checkLength(schema, value, path, errors);
  else if (isObject(value)) {
    const count = Object.keys(value).length;
    for (const name of schema.required ?? []) {
      if (ownMember(value, name) === undefined) errors.push(required(path === '' ? name : `${path}.${name}`));
    }
    if (schema.minProperties !== undefined && count < schema.minProperties) {
      errors.push(inBody(path, count, `should have at least ${schema.minProperties} properties`));
    }
    if (schema.maxProperties !== undefined && count > schema.maxProperties) {
      errors.push(tooMany(path, count, schema.maxProperties));
    }
  }
}

function checkNumber(schema: StructuralSchema, value: number, path: string, errors: FieldError[]): void {
  const { minimum, maximum, multipleOf } = schema;
  if (minimum !== undefined && (schema.exclusiveMinimum ? value <= minimum : value < minimum)) {
    const bound = schema.exclusiveMinimum ? 'greater than' : 'greater than or equal to';
    errors.push(inBody(path, value, `should be ${bound} ${minimum}`));
  }
  if (maximum !== undefined && (schema.exclusiveMaximum ? value >= maximum : value > maximum)) {
    const bound = schema.exclusiveMaximum ? 'less than' : 'less than or equal to';
    errors.push(inBody(path, value, `should be ${bound} ${maximum}`));
  }
  if (multipleOf !== undefined && !Number.isInteger(value / multipleOf)) {
    errors.push(inBody(path, value, `should be a multiple of ${multipleOf}`));
  }
  if (
    (schema.format === 'int32' && Math.abs(value) > 2 ** 31) ||
    (schema.format === 'int64' && Math.abs(value) > 2 ** 63)
  ) {
    errors.push(inBody(path, value, `must be of type ${schema.format}: ${shown(value)}`));
  }
}

function checkText(schema: StructuralSchema, value: string, path: string, errors: FieldError[]): void {
  const { minLength, maxLength, pattern, format } = schema;
  // Lengths count code points, as Go's utf8.RuneCountInString.
  const length = minLength !== undefined || maxLength !== undefined ? [...value].length : 0;
  if (minLength !== undefined && length < minLength) {
    errors.push(inBody(path, value, `should be at least ${minLength} chars long`));
  }
  if (maxLength !== undefined && length > maxLength) {
    errors.push({
      field: path,
      reason: 'FieldValueTooLong',
      message: `Too long: may not be more than ${maxLength} bytes`,
    });
  }
  if (pattern !== undefined && !matches(pattern, value)) {
    errors.push(inBody(path, value, `should match '${pattern}'`));
  }
  if (format !== undefined && !isFormat(format, value)) {
    errors.push(inBody(path, value, `must be of type ${format}: ${shown(value)}`));
  }
}

function checkLength(
  schema: StructuralSchema,
  value: readonly unknown[],
  path: string,
  errors: FieldError[],
): void {
  if (schema.minItems !== undefined && value.length < schema.minItems) {
    errors.push(inBody(path, value.length, `should have at least ${schema.minItems} items`));
  }
  if (schema.maxItems !== undefined && value.length > schema.maxItems) {
    errors.push(tooMany(path, value.length, schema.maxItems));
  }
}

/** Matches a pattern in RE2's syntax. Throws Error if it is not valid. */
export const matches = (pattern: string, value: string): boolean => re2(pattern).test(value);

function checkCombinations(
  schema: StructuralSchema,
  value: unknown,
  path: string,
  errors: FieldError[],
): void {
  const problems = (one: StructuralSchema): FieldError[] => {
    const found: FieldError[] = [];
    check(one, value, undefined, path, false, found);
    return found;
  };
  if (schema.anyOf && schema.anyOf.length > 0) {
    const found = schema.anyOf.map(problems);
    // Upstream adds what the alternative finds that fits best: of those that fit alike, the first.
    if (found.every(({ length }) => length > 0))
      errors.push(mismatch(path, 'must validate at least one schema (anyOf)'), ...(found[0] ?? []));
  }
  if (schema.oneOf && schema.oneOf.length > 0) {
    const found = schema.oneOf.map(problems);
    const count = found.filter(({ length }) => length === 0).length;
    const words = 'must validate one and only one schema (oneOf).';
    if (count === 0) errors.push(mismatch(path, `${words} Found none valid`), ...(found[0] ?? []));
    else if (count > 1) errors.push(mismatch(path, `${words} Found ${count} valid alternatives`));
  }
  if (schema.allOf && schema.allOf.length > 0) {
    const found = schema.allOf.map(problems);
    errors.push(...found.flat());
    const count = found.filter(({ length }) => length === 0).length;
    const words = 'must validate all the schemas (allOf)';
    if (count === 0) errors.push(mismatch(path, `${words}. None validated`));
    else if (count < found.length) errors.push(mismatch(path, words));
  }
  if (schema.not && problems(schema.not).length === 0)
    errors.push(mismatch(path, 'must not validate the schema (not)'));
}

/** Builds the error of a combination of schemas: upstream names the path in the message only. */
const mismatch = (path: string, what: string): FieldError => ({
  field: '<nil>',
  reason: 'FieldValueInvalid',
  message: `Invalid value: "": ${JSON.stringify(path)} ${what}`,
});

/** Items of sets and keys of map-like lists must be unique. */
function checkLists(schema: StructuralSchema, value: unknown, path: string, errors: FieldError[]): void {
  if (Array.isArray(value)) {
    const keys = schema['x-kubernetes-list-map-keys'] ?? [];
    const type = schema['x-kubernetes-list-type'];
    const seen = new Set<string>();
    value.forEach((item, index) => {
      if (type === 'map' && item !== null && !isObject(item))
        errors.push(invalid(`${path}[${index}]`, item, 'must be an object for an array of list-type map'));
      else if (type === 'set' || type === 'map') {
        const identity =
          type === 'map' && isObject(item)
            ? Object.fromEntries(
                keys.map((key) => [
                  key,
                  ownMember(item, key) ?? ownMember(schema.items?.properties, key)?.default,
                ]),
              )
            : item;
        const text = shown(identity);
        if (seen.has(text)) errors.push(duplicate(`${path}[${index}]`, identity));
        seen.add(text);
      }
      if (schema.items) checkLists(schema.items, item, `${path}[${index}]`, errors);
    });
  } else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      const known = memberSchema(schema, name);
      if (known) checkLists(known, member, memberPath(schema, path, name), errors);
    }
  }
}

function hasInvalidLists(schema: StructuralSchema, old: unknown): boolean {
  if (old === undefined) return false;
  const errors: FieldError[] = [];
  checkLists(schema, old, '', errors);
  return errors.length > 0;
}
