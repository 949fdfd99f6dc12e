import { ownMember } from '../../lib/own-member.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems } from './names.ts';

const MAX_PRECEDENCE = 10_000;
const MAX_QUEUES = 10_000_000;
const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'proxy', 'update', 'watch'];
const SUBJECTS: Readonly<Record<string, string>> = {
  ServiceAccount: 'serviceAccount',
  User: 'user',
  Group: 'group',
};

export function validateFlowSchema(schema: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(schema['spec']) ? schema['spec'] : {};
  const precedence = Number(spec['matchingPrecedence'] ?? 0);
  const path = 'spec.matchingPrecedence';
  if (precedence <= 0) errors.push(invalid(path, precedence, 'must be a positive value'));
  if (precedence > MAX_PRECEDENCE) {
    errors.push(invalid(path, precedence, `must not be greater than ${MAX_PRECEDENCE}`));
  }
  if (precedence === 1 && schema.metadata.name !== 'exempt') {
    errors.push(invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"));
  }
  const method = spec['distinguisherMethod'];
  const methods = ['ByNamespace', 'ByUser'];
  if (isObject(method) && !methods.includes(String(method['type'] ?? ''))) {
    errors.push(notSupported('spec.distinguisherMethod.type', method, methods));
  }
  const level = isObject(spec['priorityLevelConfiguration']) ? spec['priorityLevelConfiguration'] : {};
  const name = String(level['name'] ?? '');
  const field = 'spec.priorityLevelConfiguration.name';
  if (name === '') errors.push(required(field, 'must reference a priority level'));
  else for (const problem of nameProblems(name, 'subdomain')) errors.push(invalid(field, name, problem));
  listAt(spec, 'rules').forEach((rule, i) => {
    validateRule(rule, `spec.rules[${i}]`, errors);
  });
  return errors;
}

function validateRule(rule: JsonObject, path: string, errors: FieldError[]): void {
  const subjects = listAt(rule, 'subjects');
  if (subjects.length === 0)
    errors.push(required(`${path}.subjects`, 'subjects must contain at least one value'));
  subjects.forEach((subject, i) => {
    validateSubject(subject, `${path}.subjects[${i}]`, errors);
  });
  const resources = listAt(rule, 'resourceRules');
  const others = listAt(rule, 'nonResourceRules');
  if (resources.length === 0 && others.length === 0) {
    errors.push(required(path, 'at least one of resourceRules and nonResourceRules has to be non-empty'));
  }
  resources.forEach((one, i) => {
    const field = `${path}.resourceRules[${i}]`;
    validateVerbs(one, field, errors);
    validateWords(one, 'apiGroups', field, errors);
    validateWords(one, 'resources', field, errors);
    const namespaces = listAt(one, 'namespaces').map(String);
    if (namespaces.length === 0 && one['clusterScope'] !== true) {
      errors.push(
        required(
          `${field}.namespaces`,
          'resource rules that are not cluster scoped must supply at least one namespace',
        ),
      );
    } else if (namespaces.includes('*')) {
      if (namespaces.length > 1) {
        errors.push(
          invalid(`${field}.namespaces`, namespaces, "if '*' is present, must not specify other namespaces"),
        );
      }
    } else {
      namespaces.forEach((namespace, j) => {
        for (const problem of nameProblems(namespace, 'label')) {
          errors.push(invalid(`${field}.namespaces[${j}]`, namespace, problem));
        }
      });
    }
  });
  others.forEach((one, i) => {
    const field = `${path}.nonResourceRules[${i}]`;
    validateVerbs(one, field, errors);
    validateWords(one, 'nonResourceURLs', field, errors);
  });
}

function validateVerbs(rule: JsonObject, path: string, errors: FieldError[]): void {
  const verbs = listAt(rule, 'verbs').map(String);
  if (verbs.length > 0 && !verbs.includes('*') && verbs.some((verb) => !VERBS.includes(verb))) {
    errors.push(notSupported(`${path}.verbs`, verbs, VERBS));
  } else validateWords(rule, 'verbs', path, errors);
}

/** Requires at least one word; "*" must be the only one. */
function validateWords(rule: JsonObject, field: string, path: string, errors: FieldError[]): void {
  const words = listAt(rule, field).map(String);
  if (words.length === 0)
    errors.push(required(`${path}.${field}`, `${field} must contain at least one value`));
  else if (words.length > 1 && words.includes('*')) {
    errors.push(invalid(`${path}.${field}`, words, `if '*' is present, must not specify other ${field}`));
  }
}

function validateSubject(subject: JsonObject, path: string, errors: FieldError[]): void {
  const kind = String(subject['kind'] ?? '');
  const own = ownMember(SUBJECTS, kind);
  if (!own) {
    errors.push(notSupported(`${path}.kind`, kind, Object.keys(SUBJECTS).sort()));
    return;
  }
  for (const [other, field] of Object.entries(SUBJECTS)) {
    if (field !== own && subject[field] !== undefined) {
      errors.push(forbidden(`${path}.${field}`, `${field} is forbidden when subject kind is not '${other}'`));
    }
  }
  const value = subject[own];
  if (!isObject(value)) {
    errors.push(required(`${path}.${own}`, `${own} is required when subject kind is '${kind}'`));
    return;
  }
  const name = String(value['name'] ?? '');
  if (name === '') errors.push(required(`${path}.${own}.name`));
  if (kind !== 'ServiceAccount') return;
  if (name !== '' && name !== '*') {
    for (const problem of nameProblems(name, 'subdomain'))
      errors.push(invalid(`${path}.${own}.name`, name, problem));
  }
  const namespace = String(value['namespace'] ?? '');
  if (namespace === '') {
    errors.push(required(`${path}.${own}.namespace`, 'must specify namespace for service account'));
  }
  for (const problem of namespace === '' ? [] : nameProblems(namespace, 'label')) {
    errors.push(invalid(`${path}.${own}.namespace`, namespace, problem));
  }
}

export function validatePriorityLevel(configuration: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(configuration['spec']) ? configuration['spec'] : {};
  const { type = '', limited, exempt } = spec;
  if (type === 'Exempt') {
    if (limited !== undefined)
      errors.push(forbidden('spec.limited', 'must be nil if the type is not Limited'));
    return errors;
  }
  if (type !== 'Limited') {
    errors.push(notSupported('spec.type', type, ['Exempt', 'Limited']));
    return errors;
  }
  if (exempt !== undefined) errors.push(forbidden('spec.exempt', 'must be nil if the type is Limited'));
  if (!isObject(limited)) {
    errors.push(required('spec.limited', 'must not be empty when type is Limited'));
    return errors;
  }
  const shares = Number(limited['nominalConcurrencyShares'] ?? 0);
  if (shares < 0) {
    errors.push(invalid('spec.limited.nominalConcurrencyShares', shares, 'must be a non-negative integer'));
  }
  const response: JsonObject = isObject(limited['limitResponse']) ? limited['limitResponse'] : {};
  const path = 'spec.limited.limitResponse';
  const queuing = response['queuing'];
  if (response['type'] === 'Reject') {
    if (queuing !== undefined)
      errors.push(forbidden(`${path}.queuing`, 'must be nil if limited.limitResponse.type is not Limited'));
  } else if (response['type'] === 'Queue') {
    if (isObject(queuing)) validateQueuing(queuing, `${path}.queuing`, errors);
    else
      errors.push(required(`${path}.queuing`, 'must not be empty if limited.limitResponse.type is Limited'));
  } else errors.push(notSupported(`${path}.type`, response['type'] ?? '', ['Queue', 'Reject']));
  return errors;
}

function validateQueuing(queuing: JsonObject, path: string, errors: FieldError[]): void {
  const number = (field: string) => Number(queuing[field] ?? 0);
  if (number('queueLengthLimit') <= 0) {
    errors.push(invalid(`${path}.queueLengthLimit`, number('queueLengthLimit'), 'must be positive'));
  }
  if (number('queues') <= 0) errors.push(invalid(`${path}.queues`, number('queues'), 'must be positive'));
  else if (number('queues') > MAX_QUEUES) {
    errors.push(invalid(`${path}.queues`, number('queues'), `must not be greater than ${MAX_QUEUES}`));
  }
  if (number('handSize') <= 0)
    errors.push(invalid(`${path}.handSize`, number('handSize'), 'must be positive'));
  else if (number('handSize') > number('queues')) {
    errors.push(
      invalid(
        `${path}.handSize`,
        number('handSize'),
        `should not be greater than queues (${number('queues')})`,
      ),
    );
  }
}
