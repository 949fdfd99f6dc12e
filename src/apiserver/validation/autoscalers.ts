import { quantityNano } from '../../kube/quantity-text.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems } from './names.ts';
import { checkContainerResourceName } from './resources.ts';
import { applyRules, between, type Check, needed, oneOf, type Rule } from './rules.ts';

const MAX_WINDOW_SECONDS = 3600;
const MAX_PERIOD_SECONDS = 1800;

/** The field of each metric type, in the order in which they are checked; the first one that is set counts. */
const SOURCES: readonly (readonly [type: string, field: string])[] = [
  ['Object', 'object'],
  ['External', 'external'],
  ['Pods', 'pods'],
  ['Resource', 'resource'],
  ['ContainerResource', 'containerResource'],
];
const TYPES = SOURCES.map(([type]) => type).sort();

const pathName =
  (detail: string): Check =>
  (value, path, errors) => {
    if (!value) errors.push(required(path, detail));
    else
      for (const problem of nameProblems(String(value), 'path')) errors.push(invalid(path, value, problem));
  };

/** Checks "v1" or "apps/v1". */
const apiVersion: Check = (value, path, errors) => {
  const parts = String(value ?? '').split('/');
  if (parts.length > 2) {
    errors.push(invalid(path, value, `unexpected GroupVersion string: ${value}`));
    return;
  }
};

/** Checks the kind that is scaled: the group "" has only replication controllers. */
const groupNeeded: Check = (value, path, errors, target) => {
  const parts = String(value ?? '').split('/');
  const isLegacy = value === 'v1' && isObject(target) && target['kind'] === 'ReplicationController';
  if (parts.length === 1 && !isLegacy)
    errors.push(invalid(path, value ?? '', 'apiVersion must specify API group'));
};

const reference: readonly Rule[] = [
  ['kind', pathName('')],
  ['name', pathName('')],
  ['apiVersion', apiVersion],
];

const greaterThanZero = (value: unknown, path: string, errors: FieldError[]) => {
  if (Number(value ?? 0) <= 0) errors.push(invalid(path, value ?? 0, 'must be greater than zero'));
};

const SCALING_RULES: readonly Rule[] = [
  [
    'stabilizationWindowSeconds',
    between(0, MAX_WINDOW_SECONDS, `must be less than or equal to ${MAX_WINDOW_SECONDS}`),
  ],
  ['selectPolicy', oneOf('Disabled', 'Max', 'Min')],
  ['policies', needed('must specify at least one Policy')],
  [
    'policies[].type',
    (value, path, errors) => {
      const choices = ['Percent', 'Pods'];
      if (!choices.includes(String(value ?? ''))) errors.push(notSupported(path, value ?? '', choices));
    },
  ],
  ['policies[].value', greaterThanZero],
  [
    'policies[].periodSeconds',
    greaterThanZero,
    between(-(2 ** 31), MAX_PERIOD_SECONDS, `must be less than or equal to ${MAX_PERIOD_SECONDS}`),
  ],
];

function validateTarget(target: JsonObject, path: string, errors: FieldError[]): void {
  const { type = '', averageUtilization } = target;
  if (type === '') errors.push(required(`${path}.type`, 'must specify a metric target type'));
  if (!['Utilization', 'Value', 'AverageValue'].includes(String(type))) {
    errors.push(invalid(`${path}.type`, type, 'must be either Utilization, Value, or AverageValue'));
  }
  for (const field of ['value', 'averageValue']) {
    const value = target[field];
    if (value !== undefined && (quantityNano(value) ?? 0n) <= 0n) {
      errors.push(invalid(`${path}.${field}`, value, 'must be positive'));
    }
  }
  if (typeof averageUtilization === 'number' && averageUtilization < 1) {
    errors.push(invalid(`${path}.averageUtilization`, averageUtilization, 'must be greater than 0'));
  }
}

function validateSource(field: string, source: JsonObject, path: string, errors: FieldError[]): void {
  const target = isObject(source['target']) ? source['target'] : {};
  const { value, averageValue, averageUtilization } = target;
  if (field === 'object') {
    const described = isObject(source['describedObject']) ? source['describedObject'] : {};
    applyRules(described, reference, `${path}.describedObject`, errors);
  }
  if (field === 'resource' || field === 'containerResource') {
    const name = source['name'];
    if (!name) errors.push(required(`${path}.name`, 'must specify a resource name'));
    else if (field === 'containerResource') checkContainerResourceName(String(name), `${path}.name`, errors);
    if (field === 'containerResource') {
      const container = source['container'];
      if (!container) errors.push(required(`${path}.container`, 'must specify a container'));
      else {
        for (const problem of nameProblems(String(container), 'label')) {
          errors.push(invalid(`${path}.container`, container, problem));
        }
      }
    }
  } else {
    const metric = isObject(source['metric']) ? source['metric'] : {};
    applyRules(metric, [['name', pathName('must specify a metric name')]], `${path}.metric`, errors);
  }
  validateTarget(target, `${path}.target`, errors);
  const at = `${path}.target`;
  switch (field) {
    case 'object':
    case 'external':
      if (value === undefined && averageValue === undefined) {
        errors.push(required(`${at}.averageValue`, 'must set either a target value or averageValue'));
      }
      if (field === 'external' && value !== undefined && averageValue !== undefined) {
        errors.push(
          forbidden(`${at}.value`, 'may not set both a target value for metric and a per-pod target'),
        );
      }
      break;
    case 'pods':
      if (averageValue === undefined) {
        errors.push(required(`${at}.averageValue`, 'must specify a positive target averageValue'));
      }
      break;
    default:
      if (averageUtilization === undefined && averageValue === undefined) {
        errors.push(
          required(`${at}.averageUtilization`, 'must set either a target raw value or a target utilization'),
        );
      }
      if (averageUtilization !== undefined && averageValue !== undefined) {
        errors.push(
          forbidden(`${at}.averageValue`, 'may not set both a target raw value and a target utilization'),
        );
      }
  }
}

function validateMetric(metric: JsonObject, path: string, errors: FieldError[]): void {
  const type = String(metric['type'] ?? '');
  if (type === '') errors.push(required(`${path}.type`, 'must specify a metric source type'));
  if (!TYPES.includes(type)) errors.push(notSupported(`${path}.type`, type, TYPES));
  const set = SOURCES.map(([, field]) => field).filter((field) => isObject(metric[field]));
  const [first] = set;
  if (first) validateSource(first, metric[first] as JsonObject, `${path}.${first}`, errors);
  const expected = SOURCES.find(([name]) => name === type)?.[1];
  if (expected && !set.includes(expected)) {
    errors.push(required(`${path}.${expected}`, 'must populate information for the given metric source'));
  }
  if (set.length === 1) return;
  for (const field of set) {
    if (field !== expected) {
      errors.push(forbidden(`${path}.${field}`, 'must populate the given metric source only'));
    }
  }
}

export function validateAutoscaler(autoscaler: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec = isObject(autoscaler['spec']) ? autoscaler['spec'] : {};
  const least = spec['minReplicas'];
  const most = Number(spec['maxReplicas'] ?? 0);
  if (typeof least === 'number' && least < 1) {
    errors.push(invalid('spec.minReplicas', least, 'must be greater than or equal to 1'));
  }
  if (most === 0) errors.push(required('spec.maxReplicas'));
  if (most < 1) errors.push(invalid('spec.maxReplicas', most, 'must be greater than 0'));
  if (typeof least === 'number' && most < least) {
    errors.push(invalid('spec.maxReplicas', most, 'must be greater than or equal to `minReplicas`'));
  }
  const target = isObject(spec['scaleTargetRef']) ? spec['scaleTargetRef'] : {};
  applyRules(target, [...reference, ['apiVersion', groupNeeded]], 'spec.scaleTargetRef', errors);
  const metrics = listAt(spec, 'metrics');
  metrics.forEach((metric, i) => {
    validateMetric(metric, `spec.metrics[${i}]`, errors);
  });
  if (least === 0 && !metrics.some(({ type }) => type === 'Object' || type === 'External')) {
    errors.push(
      forbidden(
        'spec.metrics',
        'must specify at least one Object or External metric to support scaling to zero replicas',
      ),
    );
  }
  const behavior = spec['behavior'];
  if (!isObject(behavior)) return errors;
  for (const direction of ['scaleUp', 'scaleDown']) {
    const rules = behavior[direction];
    if (isObject(rules)) applyRules(rules, SCALING_RULES, `spec.behavior.${direction}`, errors);
  }
  return errors;
}
