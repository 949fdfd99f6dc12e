import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  tooMany,
} from '../status-error.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { validateRule } from './webhooks.ts';

const MAX_MATCH_CONDITIONS = 64;

/** Validates a ValidatingAdmissionPolicy except its expressions (pkg/apis/admissionregistration/validation). */
export function validateValidatingPolicy(policy: ApiObject): FieldError[] {
  const errors = validatePolicy(policy);
  const validations = listAt(policy, 'spec', 'validations');
  const annotations = listAt(policy, 'spec', 'auditAnnotations');
  if (validations.length + annotations.length === 0) {
    for (const list of ['validations', 'auditAnnotations']) {
      errors.push(required(`spec.${list}`, 'validations or auditAnnotations must contain at least one item'));
    }
  }
  validations.forEach((validation, i) => {
    const path = `spec.validations[${i}]`;
    needText(validation, 'expression', path, 'expression is not specified', errors);
    const [message, expression] = [textAt(validation, 'message'), textAt(validation, 'messageExpression')];
    if (expression !== '' && expression.trim() === '') {
      errors.push(invalid(`${path}.messageExpression`, expression, 'must be non-empty if specified'));
    }
    if (message !== '' && message.trim() === '') {
      errors.push(invalid(`${path}.message`, message, 'message must be non-empty if specified'));
    } else if (/[\n\r]/.test(message.trim())) {
      errors.push(invalid(`${path}.message`, message, 'message must not contain line breaks'));
    }
    checkWord(
      validation,
      'reason',
      ['Forbidden', 'Invalid', 'RequestEntityTooLarge', 'Unauthorized'],
      path,
      errors,
    );
  });
  const keys = new Set<string>();
  annotations.forEach((annotation, i) => {
    const path = `spec.auditAnnotations[${i}]`;
    const key = textAt(annotation, 'key');
    const name = `${policy.metadata.name ?? ''}/${key}`;
    for (const problem of nameProblems(name, 'qualified')) errors.push(invalid(`${path}.key`, name, problem));
    needText(annotation, 'valueExpression', path, 'valueExpression is not specified', errors);
    if (keys.has(key)) errors.push(duplicate(`${path}.key`, key));
    keys.add(key);
  });
  return errors;
}

/** Validates a MutatingAdmissionPolicy except its expressions. */
export function validateMutatingPolicy(policy: ApiObject): FieldError[] {
  const errors = validatePolicy(policy);
  const mutations = listAt(policy, 'spec', 'mutations');
  if (mutations.length === 0) {
    errors.push(required('spec.mutations', 'mutations must contain at least one item'));
  }
  mutations.forEach((mutation, i) => {
    validateMutation(mutation, `spec.mutations[${i}]`, errors);
  });
  checkOperations(policy, 'matchConstraints', errors);
  const reinvocation = at(policy, 'spec', 'reinvocationPolicy');
  if (reinvocation === undefined || reinvocation === '') errors.push(required('spec.reinvocationPolicy'));
  else checkWord(at(policy, 'spec'), 'reinvocationPolicy', ['IfNeeded', 'Never'], 'spec', errors);
  return errors;
}

/** The operations with an object that can be changed. */
const MUTABLE = ['*', 'CREATE', 'UPDATE'];

function checkOperations(object: ApiObject, field: string, errors: FieldError[]): void {
  const rules = listAt(object, 'spec', field, 'resourceRules');
  for (const operation of rules.flatMap((rule) => listOf(rule['operations']))) {
    if (MUTABLE.includes(operation)) continue;
    errors.push(notSupported(`spec.${field}.resourceRules.operations`, operation, MUTABLE));
  }
}

const listOf = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

function validateMutation(mutation: JsonObject, path: string, errors: FieldError[]): void {
  const type = textAt(mutation, 'patchType');
  const fields = { ApplyConfiguration: 'applyConfiguration', JSONPatch: 'jsonPatch' } as const;
  if (type === '') {
    errors.push(required(`${path}.patchType`));
    return;
  }
  if (!Object.hasOwn(fields, type)) {
    errors.push(notSupported(`${path}.patchType`, type, Object.keys(fields)));
    return;
  }
  for (const [owner, field] of Object.entries(fields)) {
    const value = mutation[field];
    if (owner === type && !isObject(value)) {
      errors.push(required(`${path}.${field}`, `must be specified when patchType is ${owner}`));
    } else if (owner === type) {
      needText(value, 'expression', `${path}.${field}`, 'expression is not specified', errors);
    } else if (value !== undefined) {
      errors.push(invalid(`${path}.${field}`, '{…}', `must not be specified when patchType is ${type}`));
    }
  }
}

/** Validates the common part of both kinds of policies. */
function validatePolicy(policy: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec = at(policy, 'spec');
  checkWord(spec, 'failurePolicy', ['Fail', 'Ignore'], 'spec', errors);
  const paramKind = at(spec, 'paramKind');
  if (isObject(paramKind)) validateParamKind(paramKind, errors);
  const constraints = at(spec, 'matchConstraints');
  if (isObject(constraints)) {
    validateMatchResources(constraints, 'spec.matchConstraints', errors);
    if (listAt(constraints, 'resourceRules').length === 0) {
      errors.push(required('spec.matchConstraints.resourceRules'));
    }
  } else errors.push(required('spec.matchConstraints'));
  const names = new Set<string>();
  const conditions = listAt(spec, 'matchConditions');
  if (conditions.length > MAX_MATCH_CONDITIONS) {
    errors.push(tooMany('spec.matchConditions', conditions.length, MAX_MATCH_CONDITIONS));
  }
  conditions.forEach((condition, i) => {
    const path = `spec.matchConditions[${i}]`;
    const name = textAt(condition, 'name');
    needText(condition, 'expression', path, '', errors);
    if (name === '') errors.push(required(`${path}.name`));
    else {
      for (const problem of nameProblems(name, 'qualified'))
        errors.push(invalid(`${path}.name`, name, problem));
      if (names.has(name)) errors.push(duplicate(`${path}.name`, name));
      names.add(name);
    }
  });
  listAt(spec, 'variables').forEach((variable, i) => {
    const path = `spec.variables[${i}]`;
    const name = textAt(variable, 'name');
    if (name.trim() === '') errors.push(required(`${path}.name`, 'name is not specified'));
    else if (!/^[_a-zA-Z][_a-zA-Z0-9]*$/.test(name) || RESERVED.has(name)) {
      errors.push(invalid(`${path}.name`, name, 'name is not a valid CEL identifier'));
    }
    needText(variable, 'expression', path, 'expression is not specified', errors);
  });
  return errors;
}

const RESERVED = new Set(
  'true false null in as break const continue else for function if import let loop package namespace return var void while'.split(
    ' ',
  ),
);

function validateParamKind(paramKind: JsonObject, errors: FieldError[]): void {
  const path = 'spec.paramKind';
  const apiVersion = textAt(paramKind, 'apiVersion');
  const parts = apiVersion.split('/');
  const version = parts.at(-1) ?? '';
  const group = parts.length === 2 ? (parts[0] ?? '') : '';
  if (apiVersion === '') errors.push(required(`${path}.apiVersion`));
  else if (parts.length > 2) {
    errors.push(invalid(`${path}.apiVersion`, apiVersion, `unexpected GroupVersion string: ${apiVersion}`));
  } else {
    const groupProblems = group === '' ? [] : nameProblems(group, 'subdomain');
    if (groupProblems.length > 0) {
      errors.push(invalid(`${path}.apiVersion`, group, groupProblems.join(',')));
    }
    const versionProblems = version === '' ? [] : nameProblems(version, 'label1035');
    if (version === '') errors.push(invalid(`${path}.apiVersion`, apiVersion, 'version must be specified'));
    else if (versionProblems.length > 0) {
      errors.push(invalid(`${path}.apiVersion`, version, versionProblems.join(',')));
    }
  }
  const kind = textAt(paramKind, 'kind');
  const problems = kind === '' ? [] : nameProblems(kind.toLowerCase(), 'label1035');
  if (kind === '') errors.push(required(`${path}.kind`));
  else if (problems.length > 0) {
    const detail = `may have mixed case, but should otherwise match: ${problems.join(',')}`;
    errors.push(invalid(`${path}.kind`, kind, detail));
  }
}

function validateMatchResources(constraints: JsonObject, path: string, errors: FieldError[]): void {
  checkWord(constraints, 'matchPolicy', ['Equivalent', 'Exact'], path, errors);
  for (const field of ['namespaceSelector', 'objectSelector']) {
    errors.push(...validateLabelSelector(constraints[field], `${path}.${field}`));
  }
  for (const list of ['resourceRules', 'excludeResourceRules']) {
    listAt(constraints, list).forEach((rule, i) => {
      const names = new Set<string>();
      const given = rule['resourceNames'];
      (Array.isArray(given) ? given.map(String) : []).forEach((name, j) => {
        const field = `${path}.${list}[${i}].resourceNames[${j}]`;
        for (const problem of nameProblems(name, 'path')) errors.push(invalid(field, name, problem));
        if (names.has(name)) errors.push(duplicate(field, name));
        names.add(name);
      });
      validateRule(rule, `${path}.${list}[${i}]`, errors);
    });
  }
}

/** Validates a ValidatingAdmissionPolicyBinding. */
export function validateValidatingBinding(binding: ApiObject): FieldError[] {
  const errors = validateBinding(binding);
  const given = at(binding, 'spec', 'validationActions');
  const actions = Array.isArray(given) ? given.map(String) : [];
  const path = 'spec.validationActions';
  actions.forEach((action, i) => {
    if (!['Audit', 'Deny', 'Warn'].includes(action)) {
      errors.push(notSupported(`${path}[${i}]`, action, ['Audit', 'Deny', 'Warn']));
    }
    if (actions.indexOf(action) < i) errors.push(duplicate(`${path}[${i}]`, action));
  });
  if (actions.includes('Deny') && actions.includes('Warn')) {
    const detail =
      'must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)';
    errors.push(invalid(path, actions, detail));
  }
  if (actions.length === 0) errors.push(required(path, 'at least one validation action is required'));
  return errors;
}

/** Validates a MutatingAdmissionPolicyBinding. */
export function validateMutatingBinding(binding: ApiObject): FieldError[] {
  const errors = validateBinding(binding);
  checkOperations(binding, 'matchResources', errors);
  return errors;
}

function validateBinding(binding: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const policyName = textAt(binding, 'spec', 'policyName');
  if (policyName === '') errors.push(required('spec.policyName'));
  else {
    for (const problem of nameProblems(policyName, 'subdomain')) {
      errors.push(invalid('spec.policyName', policyName, problem));
    }
  }
  const reference = at(binding, 'spec', 'paramRef');
  if (isObject(reference)) validateParamRef(reference, 'spec.paramRef', errors);
  const matched = at(binding, 'spec', 'matchResources');
  if (isObject(matched)) validateMatchResources(matched, 'spec.matchResources', errors);
  return errors;
}

function validateParamRef(reference: JsonObject, path: string, errors: FieldError[]): void {
  const name = textAt(reference, 'name');
  const { selector } = reference;
  const both = name !== '' && isObject(selector);
  if (name !== '') {
    for (const problem of nameProblems(name, 'path')) errors.push(invalid(`${path}.name`, name, problem));
  }
  if (both) errors.push(forbidden(`${path}.name`, 'name and selector are mutually exclusive'));
  if (isObject(selector)) errors.push(...validateLabelSelector(selector, `${path}.selector`));
  if (both) errors.push(forbidden(`${path}.selector`, 'name and selector are mutually exclusive'));
  if (name === '' && !isObject(selector)) {
    errors.push(required(path, 'one of name or selector must be specified'));
  }
  const action = textAt(reference, 'parameterNotFoundAction');
  if (action === '') errors.push(required(`${path}.parameterNotFoundAction`));
  else checkWord(reference, 'parameterNotFoundAction', ['Deny', 'Allow'], path, errors);
}

function needText(object: unknown, field: string, path: string, detail: string, errors: FieldError[]): void {
  if (textAt(object, field).trim() === '') errors.push(required(`${path}.${field}`, detail));
}

function checkWord(
  object: unknown,
  field: string,
  words: readonly string[],
  path: string,
  errors: FieldError[],
): void {
  const value = at(object, field);
  if (value !== undefined && !words.includes(String(value))) {
    errors.push(notSupported(`${path}.${field}`, value, words));
  }
}
