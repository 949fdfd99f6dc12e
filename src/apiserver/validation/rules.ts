import { MAX_API_ID } from '../../lib/user-ids.ts';
import { equal, isObject, type JsonObject } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { type NameForm, nameProblems, portNameProblems, validateLabelSelector } from './names.ts';

/** Checks the value of one field; `path` names it, `parent` contains it, `root` is the validated object. */
export type Check = (
  value: unknown,
  path: string,
  errors: FieldError[],
  parent: JsonObject,
  root: JsonObject,
) => void;

/** A field ("spec.ports[].name"; "[]" means every item) and the checks of its value. */
export type Rule = readonly [pattern: string, ...checks: Check[]];

/**
 * Applies rules to an object. Fields below an absent value are not checked; an absent field itself is, as undefined.
 */
export function applyRules(
  object: object,
  rules: readonly Rule[],
  prefix: string,
  errors: FieldError[],
): void {
  for (const [pattern, ...checks] of rules) {
    visit(object, pattern.split('.'), prefix, (value, path, parent) => {
      for (const check of checks) check(value, path, errors, parent, object as JsonObject);
    });
  }
}

function visit(
  value: unknown,
  steps: readonly string[],
  path: string,
  found: (value: unknown, path: string, parent: JsonObject) => void,
): void {
  const [step = '', ...rest] = steps;
  if (!isObject(value)) return;
  const name = step.endsWith('[]') ? step.slice(0, -2) : step;
  const field = path === '' ? name : `${path}.${name}`;
  const at = value[name];
  if (step !== name) {
    if (!Array.isArray(at)) return;
    at.forEach((item, index) => {
      if (rest.length === 0) found(item, `${field}[${index}]`, value);
      else visit(item, rest, `${field}[${index}]`, found);
    });
  } else if (rest.length === 0) found(at, field, value);
  else visit(at, rest, field, found);
}

/** Absent in Go's sense. */
export const isUnset = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === '' ||
  (Array.isArray(value) && value.length === 0) ||
  (isObject(value) && Object.keys(value).length === 0);

export const needed =
  (detail = ''): Check =>
  (value, path, errors) => {
    if (isUnset(value)) errors.push(required(path, detail));
  };

/** Requires presence, possibly as an empty object: a non-nil pointer in Go. */
export const present =
  (detail = ''): Check =>
  (value, path, errors) => {
    if (value === undefined || value === null) errors.push(required(path, detail));
  };

/** Requires one of the words, or absence. */
export const oneOf =
  (...choices: string[]): Check =>
  (value, path, errors) => {
    if (value !== undefined && !choices.includes(String(value)))
      errors.push(notSupported(path, value, choices));
  };

/** Requires one of the words; an absent value is refused as not among them. */
export const someOf =
  (...choices: string[]): Check =>
  (value, path, errors) => {
    if (!choices.includes(String(value ?? ''))) errors.push(notSupported(path, value ?? '', choices));
  };

/** Requires one of the words; an absent value is refused as missing. */
export const neededOneOf =
  (...choices: string[]): Check =>
  (value, path, errors) => {
    if (isUnset(value)) errors.push(required(path));
    else if (!choices.includes(String(value))) errors.push(notSupported(path, value, choices));
  };

export const atLeastZero: Check = (value, path, errors) => {
  if (typeof value === 'number' && value < 0)
    errors.push(invalid(path, value, 'must be greater than or equal to 0'));
};

export const positive: Check = (value, path, errors) => {
  if (typeof value === 'number' && value <= 0) errors.push(invalid(path, value, 'must be greater than 0'));
};

/** Requires a number within bounds; an absent value counts as 0 with `absentIsZero`. */
export const between =
  (low: number, high: number, detail: string, absentIsZero = false): Check =>
  (value, path, errors) => {
    const number = value ?? (absentIsZero ? 0 : undefined);
    if (typeof number === 'number' && (number < low || number > high))
      errors.push(invalid(path, number, detail));
  };

/** Requires a number of a user or group. */
export const identifier: Check = between(0, MAX_API_ID, 'must be between 0 and 2147483647, inclusive');

export const portNumber: Check = (value, path, errors) => {
  const port = value ?? 0;
  if (typeof port !== 'number' || port < 1 || port > 65535) {
    errors.push(invalid(path, port, 'must be between 1 and 65535, inclusive'));
  }
};

/** Requires a port's number or name. */
export const portNumberOrName: Check = (value, path, errors) => {
  if (typeof value !== 'string') portNumber(value, path, errors, {}, {});
  else for (const problem of portNameProblems(value)) errors.push(invalid(path, value, problem));
};

export const portName: Check = (value, path, errors) => {
  if (isUnset(value)) return;
  for (const problem of portNameProblems(String(value))) errors.push(invalid(path, value, problem));
};

/** Requires a name of the form, or absence. */
export const named =
  (form: NameForm): Check =>
  (value, path, errors) => {
    if (isUnset(value)) return;
    for (const problem of nameProblems(String(value), form)) errors.push(invalid(path, value, problem));
  };

/** Requires a name of the form; an absent value is refused as malformed. */
export const mustBeNamed =
  (form: NameForm): Check =>
  (value, path, errors) => {
    for (const problem of nameProblems(String(value ?? ''), form)) {
      errors.push(invalid(path, value ?? '', problem));
    }
  };

export const labelSelector: Check = (value, path, errors) => {
  errors.push(...validateLabelSelector(value, path));
};

/** Requires a relative path that does not leave its directory. */
export const localPath: Check = (value, path, errors) => {
  if (isUnset(value)) return;
  const text = String(value);
  if (text.startsWith('/')) errors.push(invalid(path, value, 'must be a relative path'));
  noBacksteps(value, path, errors, {}, {});
};

export const noBacksteps: Check = (value, path, errors) => {
  if (
    String(value ?? '')
      .split('/')
      .includes('..')
  )
    errors.push(invalid(path, value, "must not contain '..'"));
};

/** Requires a file mode: 0 to 0777. */
export const fileMode: Check = between(
  0,
  0o777,
  'must be a number between 0 and 0777 (octal), both inclusive',
);

export const refused =
  (detail: string): Check =>
  (value, path, errors) => {
    if (!isUnset(value)) errors.push(forbidden(path, detail));
  };

/** Applies rules to an object in a field. */
export const nested =
  (rules: readonly Rule[]): Check =>
  (value, path, errors) => {
    if (isObject(value)) applyRules(value, rules, path, errors);
  };

/** Refuses list items with equal `key` as duplicates, at `[index]SUFFIX`. */
export const distinct =
  (key: (item: JsonObject) => unknown, suffix = '', shown: (item: JsonObject) => unknown = key): Check =>
  (value, path, errors) => {
    if (!Array.isArray(value)) return;
    const seen = new Set<string>();
    for (const [index, item] of value.entries()) {
      const raw = key(item as JsonObject);
      if (isUnset(raw)) continue;
      const text = JSON.stringify(raw);
      if (seen.has(text)) errors.push(duplicateAt(`${path}[${index}]${suffix}`, shown(item as JsonObject)));
      seen.add(text);
    }
  };

function duplicateAt(field: string, value: unknown): FieldError {
  return { field, reason: 'FieldValueDuplicate', message: `Duplicate value: ${JSON.stringify(value)}` };
}

/** Requires a count or a percentage, "10%". */
export const countOrPercent: Check = (value, path, errors) => {
  if (typeof value === 'string') {
    if (!/^[0-9]+%$/.test(value)) errors.push(invalid(path, value, PERCENT_RULE));
  } else atLeastZero(value, path, errors, {}, {});
};

/** Refuses a percentage above 100. */
export const atMostHundredPercent: Check = (value, path, errors) => {
  if (typeof value === 'string' && /^[0-9]+%$/.test(value) && Number(value.slice(0, -1)) > 100) {
    errors.push(invalid(path, value, 'must not be greater than 100%'));
  }
};

const PERCENT_RULE =
  "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/** Requires that fields keep their first value. */
export function checkImmutable(
  object: object,
  before: object,
  fields: readonly string[],
  errors: FieldError[],
  detail = 'field is immutable',
): void {
  for (const field of fields) {
    const read = (one: object) =>
      field.split('.').reduce<unknown>((value, step) => (isObject(value) ? value[step] : undefined), one);
    if (!equal(read(object), read(before))) errors.push(invalid(field, read(object) ?? null, detail));
  }
}
