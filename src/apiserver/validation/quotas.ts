import { quantityNano } from '../../kube/quantity-text.ts';
import { ownMember } from '../../lib/own-member.ts';
import { type ApiObject, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, required } from '../status-error.ts';
import { nameProblems } from './names.ts';
import {
  checkContainerResourceName,
  checkResourceAmount,
  checkResourceName,
  QUOTA_RESOURCES,
} from './resources.ts';

const SCOPES = [
  'BestEffort',
  'CrossNamespacePodAffinity',
  'NotBestEffort',
  'NotTerminating',
  'PriorityClass',
  'Terminating',
  'VolumeAttributesClass',
];
const POD_SCOPES: Readonly<Record<string, readonly string[]>> = {
  BestEffort: ['pods'],
};
const COMPUTE = ['cpu', 'memory', 'pods', 'requests.cpu', 'requests.memory', 'limits.cpu', 'limits.memory'];

export function validateResourceQuota(quota: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(quota['spec']) ? quota['spec'] : {};
  const hard = isObject(spec['hard']) ? spec['hard'] : {};
  for (const [name, amount] of Object.entries(hard)) {
    const path = `spec.hard[${name}]`;
    for (const problem of nameProblems(name, 'qualified')) errors.push(invalid(path, name, problem));
    if (!name.includes('/') && !QUOTA_RESOURCES.includes(name) && !/^(requests\.)?hugepages-/.test(name)) {
      errors.push(invalid(path, name, 'must be a standard resource type or fully qualified'));
      if (nameProblems(name, 'qualified').length === 0) errors.pop();
      if (nameProblems(name, 'qualified').length === 0) {
        errors.push(invalid(path, name, 'must be a standard resource for quota'));
      }
    }
    checkResourceAmount(name, amount, path, errors);
  }
  const scopes = listAt(spec, 'scopes').map(String);
  for (const scope of scopes) {
    if (!SCOPES.includes(scope)) errors.push(invalid('spec.scopes', scopes, 'unsupported scope'));
    const allowed = ownMember(POD_SCOPES, scope) ?? COMPUTE;
    const checked = [
      'BestEffort',
      'NotBestEffort',
      'Terminating',
      'NotTerminating',
      'CrossNamespacePodAffinity',
    ].includes(scope);
    if (
      checked &&
      Object.keys(hard).some(
        (name) =>
          QUOTA_RESOURCES.includes(name) && !allowed.includes(name) && !name.includes('ephemeral-storage'),
      )
    ) {
      errors.push(invalid('spec.scopes', scopes, 'unsupported scope applied to resource'));
    }
  }
  for (const [a, b] of [
    ['BestEffort', 'NotBestEffort'],
    ['Terminating', 'NotTerminating'],
  ] as const) {
    if (scopes.includes(a) && scopes.includes(b))
      errors.push(invalid('spec.scopes', scopes, 'conflicting scopes'));
  }
  listAt(spec, 'scopeSelector', 'matchExpressions').forEach((one) => {
    validateScope(one, 'spec.scopeSelector.matchExpressions', errors);
  });
  if (before) {
    const old = listAt(before, 'spec', 'scopes').map(String);
    const distinct = (list: readonly string[]) => [...new Set(list)].sort();
    if (!equal(distinct(scopes), distinct(old)))
      errors.push(invalid('spec.scopes', scopes, 'field is immutable'));
  }
  return errors;
}

function validateScope(one: JsonObject, path: string, errors: FieldError[]): void {
  const { scopeName = '', operator = '' } = one;
  const values = listAt(one, 'values').map(String);
  if (!SCOPES.includes(String(scopeName)))
    errors.push(invalid(`${path}.scopeName`, scopeName, 'unsupported scope'));
  const plain = ['BestEffort', 'NotBestEffort', 'Terminating', 'NotTerminating', 'CrossNamespacePodAffinity'];
  if (plain.includes(String(scopeName)) && operator !== 'Exists') {
    errors.push(
      invalid(
        `${path}.operator`,
        operator,
        "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
      ),
    );
  }
  switch (operator) {
    case 'In':
    case 'NotIn':
      if (values.length === 0) {
        errors.push(
          required(
            `${path}.values`,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
          ),
        );
      }
      break;
    case 'Exists':
    case 'DoesNotExist':
      if (values.length > 0) {
        errors.push(
          invalid(
            `${path}.values`,
            values,
            "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
          ),
        );
      }
      break;
    default:
      errors.push(invalid(`${path}.operator`, operator, 'not a valid selector operator'));
  }
}

const LIMIT_FIELDS = ['max', 'min', 'default', 'defaultRequest', 'maxLimitRequestRatio'] as const;

export function validateLimitRange(range: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const types = new Set<unknown>();
  listAt(range, 'spec', 'limits').forEach((limit, i) => {
    const path = `spec.limits[${i}]`;
    const type = String(limit['type'] ?? '');
    for (const problem of nameProblems(type, 'qualified'))
      errors.push(invalid(`${path}.type`, type, problem));
    if (
      nameProblems(type, 'qualified').length === 0 &&
      !type.includes('/') &&
      !['Pod', 'Container', 'PersistentVolumeClaim'].includes(type)
    ) {
      errors.push(invalid(`${path}.type`, type, 'must be a standard limit type or fully qualified'));
    }
    if (types.has(type)) errors.push(duplicate(`${path}.type`, type));
    types.add(type);
    validateLimit(limit, type, path, errors);
  });
  return errors;
}

function validateLimit(limit: JsonObject, type: string, path: string, errors: FieldError[]): void {
  const part = (field: string): JsonObject => (isObject(limit[field]) ? limit[field] : {});
  const fields = LIMIT_FIELDS.filter((field) => type !== 'Pod' || !field.startsWith('default'));
  if (type === 'Pod') {
    for (const field of ['default', 'defaultRequest']) {
      if (Object.keys(part(field)).length > 0) {
        errors.push(forbidden(`${path}.${field}`, "may not be specified when `type` is 'Pod'"));
      }
    }
  }
  if (
    type === 'PersistentVolumeClaim' &&
    part('min')['storage'] === undefined &&
    part('max')['storage'] === undefined
  ) {
    errors.push(
      required(
        `${path}.limits`,
        'either minimum or maximum storage value is required, but neither was provided',
      ),
    );
  }
  const names = new Set(fields.flatMap((field) => Object.keys(part(field))));
  for (const field of fields) {
    for (const name of Object.keys(part(field))) {
      const check = type === 'Pod' || type === 'Container' ? checkContainerResourceName : checkResourceName;
      check(name, `${path}.${field}[${name}]`, errors);
    }
  }
  for (const name of names) {
    const value = (field: string) => quantityNano(part(field)[name]);
    const order = (low: string, high: string, field: string) => {
      const [a, b] = [value(low), value(high)];
      if (a !== null && b !== null && a > b) {
        errors.push(
          invalid(
            `${path}.${field}[${name}]`,
            part(field)[name],
            `${low} value ${part(low)[name]} is greater than ${high} value ${part(high)[name]}`,
          ),
        );
      }
    };
    order('min', 'max', 'min');
    order('min', 'defaultRequest', 'defaultRequest');
    order('defaultRequest', 'max', 'defaultRequest');
    order('defaultRequest', 'default', 'defaultRequest');
    order('min', 'default', 'default');
    order('default', 'max', 'default');
    const ratio = value('maxLimitRequestRatio');
    const field = `${path}.maxLimitRequestRatio[${name}]`;
    if (ratio === null) continue;
    if (ratio < 10n ** 9n)
      errors.push(invalid(field, part('maxLimitRequestRatio')[name], 'ratio is less than 1'));
    const [least, most] = [value('min'), value('max')];
    if (least !== null && most !== null && least > 0n && Number(ratio) / 1e9 > Number(most) / Number(least)) {
      errors.push(
        invalid(
          field,
          part('maxLimitRequestRatio')[name],
          `ratio ${part('maxLimitRequestRatio')[name]} is greater than max/min = ${Number(most) / Number(least)}`,
        ),
      );
    }
  }
}
