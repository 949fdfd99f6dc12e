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

/** What is wrong with a name of the given form, in upstream's words, or null. */
export function nameProblem(name: string, form: 'subdomain' | 'label' | 'label1035' | 'path'): string | null {
  switch (form) {
    case 'subdomain':
      if (name.length > 253) return 'must be no more than 253 characters';
      return SUBDOMAIN.test(name) ? null : SUBDOMAIN_RULE;
    case 'label':
      if (name.length > 63) return 'must be no more than 63 characters';
      return LABEL.test(name) ? null : LABEL_RULE;
    case 'label1035':
      if (name.length > 63) return 'must be no more than 63 characters';
      return LABEL_1035.test(name) ? null : LABEL_1035_RULE;
    case 'path':
      return name === '.' || name === '..' || /[/%]/.test(name) ? "may not contain '/' or '%'" : null;
  }
}

/** Checks labels, or a selector's matchLabels. */
export function validateLabels(labels: unknown, field: string): FieldError[] {
  if (labels === undefined) return [];
  if (!isObject(labels)) return [invalid(field, labels, 'must be a map of strings')];
  return Object.entries(labels).flatMap(([key, value]) => {
    const problem = qualifiedNameProblem(key);
    if (problem) return [invalid(field, key, problem)];
    if (typeof value !== 'string' || value.length > 63 || !LABEL_VALUE.test(value)) {
      const rule =
        typeof value === 'string' && value.length > 63
          ? 'must be no more than 63 characters'
          : "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
      return [invalid(field, value, rule)];
    }
    return [];
  });
}

/** Checks annotations: names like labels', values free but 256 KiB in all. */
export function validateAnnotations(annotations: unknown, field: string): FieldError[] {
  if (annotations === undefined) return [];
  if (!isObject(annotations)) return [invalid(field, annotations, 'must be a map of strings')];
  const errors: FieldError[] = [];
  let size = 0;
  for (const [key, value] of Object.entries(annotations)) {
    const problem = qualifiedNameProblem(key.toLowerCase());
    if (problem) errors.push(invalid(field, key, problem));
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

function qualifiedNameProblem(key: string): string | null {
  const parts = key.split('/');
  const name = parts.at(-1) ?? '';
  if (parts.length > 2 || name.length > 63 || !QUALIFIED_NAME.test(name)) {
    return "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
  }
  if (parts.length === 2 && nameProblem(parts[0] ?? '', 'subdomain')) return `prefix part ${SUBDOMAIN_RULE}`;
  return null;
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
    const problem = qualifiedNameProblem(typeof key === 'string' ? key : '');
    if (problem) errors.push(invalid(`${path}.key`, key, problem));
  }
  return errors;
}

/** Checks a TCP, UDP or SCTP port number. */
export function validatePortNumber(port: unknown, field: string): FieldError[] {
  return typeof port === 'number' && Number.isInteger(port) && port >= 1 && port <= 65535
    ? []
    : [invalid(field, port ?? 0, 'must be between 1 and 65535, inclusive')];
}

/** What is wrong with a port's name (IANA_SVC_NAME), or null. */
export function portNameProblem(name: string): string | null {
  if (name.length > 15) return 'must be no more than 15 characters';
  if (!/^[-a-z0-9]+$/.test(name))
    return 'must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)';
  if (!/[a-z]/.test(name)) return 'must contain at least one letter (a-z)';
  if (name.includes('--')) return 'must not contain consecutive hyphens';
  if (name.startsWith('-') || name.endsWith('-')) return 'must not begin or end with a hyphen';
  return null;
}
