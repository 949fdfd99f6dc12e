import { isObject } from '../object.ts';
import { type FieldError, invalid } from '../status-error.ts';

const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const LABEL_1035 = /^[a-z]([-a-z0-9]*[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const QUALIFIED_NAME = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const LABEL_VALUE = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;

const SUBDOMAIN_RULE =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_RULE =
  "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/** The forms of names; for "prefix" (generateName), the last dash is checked as a letter. */
export type NameForm =
  | 'subdomain'
  | 'label'
  | 'label1035'
  | 'path'
  | 'qualified'
  | 'configKey'
  | 'environment'
  | 'domainPath'
  | 'wildcard'
  | 'fqdn'
  | 'httpHeader';

const tooLong = (most: number) => `must be no more than ${most} characters`;

/** Returns all problems with a name of the given form, in upstream's words. */
export function nameProblems(name: string, form: NameForm): string[] {
  const limit = (most: number, pattern: RegExp, rule: string) => [
    ...(name.length > most ? [tooLong(most)] : []),
    ...(pattern.test(name) ? [] : [rule]),
  ];
  switch (form) {
    case 'subdomain':
      return limit(253, SUBDOMAIN, SUBDOMAIN_RULE);
    case 'label':
      return limit(63, LABEL, LABEL_RULE);
    case 'label1035':
      return limit(63, LABEL_1035, LABEL_1035_RULE);
    case 'path':
      if (name === '.' || name === '..') return [`may not be '${name}'`];
      return ['/', '%'].filter((sign) => name.includes(sign)).map((sign) => `may not contain '${sign}'`);
    case 'qualified':
      return qualifiedNameProblems(name);
    case 'configKey':
      if (name === '.' || name === '..') return [`must not be '${name}'`];
      return [
        ...limit(253, /^[-._a-zA-Z0-9]+$/, CONFIG_KEY_RULE),
        ...(name.startsWith('..') ? ["must not start with '..'"] : []),
      ];
    case 'environment':
      return /^[ -<>-~]+$/.test(name) ? [] : [ENVIRONMENT_RULE];
    case 'domainPath': {
      const slash = name.indexOf('/');
      if (slash < 0) return ['must be a domain-prefixed path (such as "acme.io/foo")'];
      return nameProblems(name.slice(0, slash), 'subdomain');
    }
    case 'wildcard':
      return limit(
        253,
        /^\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/,
        WILDCARD_RULE,
      );
    case 'fqdn': {
      const problems = nameProblems(name, 'subdomain');
      if (problems.length > 0) return problems;
      return name.includes('.') ? [] : ['should be a domain with at least two segments separated by dots'];
    }
    case 'httpHeader':
      return /^[-A-Za-z0-9]+$/.test(name) ? [] : [HEADER_RULE];
  }
}

/** Returns the first of `nameProblems`, or null. */
export function nameProblem(name: string, form: NameForm): string | null {
  return nameProblems(name, form)[0] ?? null;
}

const CONFIG_KEY_RULE =
  "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENVIRONMENT_RULE =
  "a valid environment variable name must consist only of printable ASCII characters other than '='";
const WILDCARD_RULE =
  "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const HEADER_RULE =
  "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const LABEL_VALUE_RULE =
  "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/** Returns the problems with a label's value. */
export function labelValueProblems(value: string): string[] {
  return [
    ...(value.length > 63 ? [tooLong(63)] : []),
    ...(LABEL_VALUE.test(value) ? [] : [LABEL_VALUE_RULE]),
  ];
}

/** Checks labels, or a selector's matchLabels. */
export function validateLabels(labels: unknown, field: string): FieldError[] {
  if (!isObject(labels)) return [];
  return Object.entries(labels).flatMap(([key, value]) => [
    ...qualifiedNameProblems(key).map((problem) => invalid(field, key, problem)),
    ...labelValueProblems(String(value)).map((problem) => invalid(field, value, problem)),
  ]);
}

/** Checks annotations: names like labels', any values, at most 256 KiB in total. */
export function validateAnnotations(annotations: unknown, field: string): FieldError[] {
  if (annotations === undefined) return [];
  if (!isObject(annotations)) return [invalid(field, annotations, 'must be a map of strings')];
  const errors: FieldError[] = [];
  let size = 0;
  for (const [key, value] of Object.entries(annotations)) {
    for (const problem of qualifiedNameProblems(key.toLowerCase())) errors.push(invalid(field, key, problem));
    size += key.length + String(value).length;
  }
  if (size > 256 * 1024)
    errors.push({
      field,
      reason: 'FieldValueTooLong',
      message: 'Too long: may not be more than 262144 bytes',
    });
  return errors;
}

const QUALIFIED_RULE =
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

function qualifiedNameProblems(key: string): string[] {
  const parts = key.split('/');
  if (parts.length > 2) {
    return [
      `a valid label key must consist of alphanumeric characters, '-', '_' or '.', with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
    ];
  }
  const name = parts.at(-1) ?? '';
  const problems: string[] = [];
  if (parts.length === 2) {
    const prefix = parts[0] ?? '';
    if (prefix === '') problems.push('prefix part must be non-empty');
    else problems.push(...nameProblems(prefix, 'subdomain').map((problem) => `prefix part ${problem}`));
  }
  if (name === '') problems.push('name part must be non-empty');
  else if (name.length > 63) problems.push(`name part ${tooLong(63)}`);
  if (!QUALIFIED_NAME.test(name)) problems.push(`name part ${QUALIFIED_RULE}`);
  return problems;
}

/** Checks a meta/v1 LabelSelector. */
export function validateLabelSelector(selector: unknown, field: string): FieldError[] {
  if (!isObject(selector)) return [];
  const errors = validateLabels(selector['matchLabels'], `${field}.matchLabels`);
  const expressions = Array.isArray(selector['matchExpressions']) ? selector['matchExpressions'] : [];
  for (const [i, expression] of expressions.entries()) {
    const path = `${field}.matchExpressions[${i}]`;
    if (!isObject(expression)) continue;
    const { key, operator, values } = expression;
    const count = Array.isArray(values) ? values.length : 0;
    if (operator === 'In' || operator === 'NotIn') {
      if (count === 0)
        errors.push({
          field: `${path}.values`,
          reason: 'FieldValueRequired',
          message: "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        });
    } else if (operator === 'Exists' || operator === 'DoesNotExist') {
      if (count > 0)
        errors.push({
          field: `${path}.values`,
          reason: 'FieldValueForbidden',
          message: "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        });
    } else errors.push(invalid(`${path}.operator`, operator, 'not a valid selector operator'));
    for (const problem of qualifiedNameProblems(typeof key === 'string' ? key : '')) {
      errors.push(invalid(`${path}.key`, key ?? '', problem));
    }
    for (const [j, value] of (Array.isArray(values) ? values : []).entries()) {
      for (const problem of labelValueProblems(String(value))) {
        errors.push(invalid(`${path}.values[${j}]`, value, problem));
      }
    }
  }
  return errors;
}

/** Returns the problems with a port's name (IANA_SVC_NAME). */
export function portNameProblems(name: string): string[] {
  const problems: string[] = [];
  if (name.length > 15) problems.push(tooLong(15));
  if (!/^[-a-z0-9]+$/.test(name)) {
    problems.push('must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)');
  }
  if (!/[a-z]/.test(name)) problems.push('must contain at least one letter (a-z)');
  if (name.includes('--')) problems.push('must not contain consecutive hyphens');
  if (name.startsWith('-') || name.endsWith('-')) problems.push('must not begin or end with a hyphen');
  return problems;
}
