import { quantityNano } from '../../kube/quantity-text.ts';
import type { Kind } from '../kind.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { checkCidr } from './addresses.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import {
  checkContainerResourceName,
  checkResourceAmount,
  checkResourceName,
  QUOTA_RESOURCES,
  validateResources,
} from './resources.ts';
import {
  applyRules,
  atLeastZero,
  atMostHundredPercent,
  checkImmutable,
  countOrPercent,
  positive,
  type Rule,
} from './rules.ts';
import { nodeSelector, tolerations, validateTaints } from './scheduling.ts';

const MAX_DATA_BYTES = 1024 * 1024;

const tooLong = (field: string, most: number): FieldError => ({
  field,
  reason: 'FieldValueTooLong',
  message: `Too long: may not be more than ${most} bytes`,
});

const mapAt = (object: ApiObject, field: string): JsonObject =>
  isObject(object[field]) ? object[field] : {};
const bytesOf = (base64: unknown): number => Buffer.byteLength(String(base64), 'base64');

function checkKeys(map: JsonObject, field: string, errors: FieldError[]): void {
  for (const key of Object.keys(map)) {
    for (const problem of nameProblems(key, 'configKey'))
      errors.push(invalid(`${field}[${key}]`, key, problem));
  }
}

/** Data of an immutable object cannot change, nor can the object become mutable. */
function checkFrozen(
  object: ApiObject,
  before: ApiObject | null,
  fields: readonly string[],
  errors: FieldError[],
): void {
  if (before?.['immutable'] !== true) return;
  if (object['immutable'] !== true)
    errors.push(forbidden('immutable', 'field is immutable when `immutable` is set'));
  for (const field of fields) {
    if (!equal(object[field], before[field])) {
      errors.push(forbidden(field, 'field is immutable when `immutable` is set'));
    }
  }
}

export function validateConfigMap(map: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const data = mapAt(map, 'data');
  const binary = mapAt(map, 'binaryData');
  for (const key of Object.keys(data)) {
    for (const problem of nameProblems(key, 'configKey')) errors.push(invalid(`data[${key}]`, key, problem));
    if (binary[key] !== undefined)
      errors.push(invalid(`data[${key}]`, key, 'duplicate of key present in binaryData'));
  }
  checkKeys(binary, 'binaryData', errors);
  const size =
    Object.values(data).reduce<number>((sum, value) => sum + Buffer.byteLength(String(value)), 0) +
    Object.values(binary).reduce<number>((sum, value) => sum + bytesOf(value), 0);
  if (size > MAX_DATA_BYTES) errors.push(tooLong('', MAX_DATA_BYTES));
  checkFrozen(map, before, ['data', 'binaryData'], errors);
  return errors;
}

/** The required keys of each type of Secret. */
const SECRET_KEYS: Readonly<Record<string, readonly string[]>> = {
  'kubernetes.io/dockercfg': ['.dockercfg'],
  'kubernetes.io/dockerconfigjson': ['.dockerconfigjson'],
  'kubernetes.io/ssh-auth': ['ssh-privatekey'],
  'kubernetes.io/tls': ['tls.crt', 'tls.key'],
};

export function validateSecret(secret: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const data = mapAt(secret, 'data');
  const type = String(secret['type'] ?? '');
  checkKeys(data, 'data', errors);
  const size = Object.values(data).reduce<number>((sum, value) => sum + bytesOf(value), 0);
  if (size > MAX_DATA_BYTES) errors.push(tooLong('data', MAX_DATA_BYTES));
  if (type === 'kubernetes.io/service-account-token') {
    const field = 'metadata.annotations[kubernetes.io/service-account.name]';
    if (!secret.metadata.annotations?.['kubernetes.io/service-account.name']) errors.push(required(field));
  } else if (type === 'kubernetes.io/basic-auth') {
    if (data['username'] === undefined && data['password'] === undefined) {
      errors.push(required('data[username]'), required('data[password]'));
    }
  } else {
    for (const key of SECRET_KEYS[type] ?? []) {
      if (data[key] === undefined) errors.push(required(`data[${key}]`));
      else if (key.startsWith('.docker')) {
        try {
          JSON.parse(Buffer.from(String(data[key]), 'base64').toString());
        } catch {
          errors.push(invalid(`data[${key}]`, '<secret contents redacted>', 'invalid JSON'));
        }
      } else if (key === 'ssh-privatekey' && data[key] === '') errors.push(required(`data[${key}]`));
    }
  }
  if (before) checkImmutable(secret, before, ['type'], errors);
  checkFrozen(secret, before, ['data'], errors);
  return errors;
}

export function validateNode(node: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(node['spec']) ? node['spec'] : {};
  // Upstream reports the taints below metadata.
  validateTaints(listAt(spec, 'taints'), 'metadata.taints', errors);
  const cidrs = listAt(spec, 'podCIDRs').map(String);
  if (cidrs.length > 0 && !equal(cidrs, listAt(before, 'spec', 'podCIDRs'))) {
    const old = new Set(listAt(before, 'spec', 'podCIDRs').map(String));
    const families = cidrs.map((cidr, i) => checkCidr(cidr, `spec.podCIDRs[${i}]`, errors, old)?.family);
    const bad = families.indexOf(undefined);
    if (cidrs.length > 1 && bad >= 0) {
      errors.push({
        field: 'spec.podCIDRs',
        reason: 'InternalError',
        message: `Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[${bad}]: <nil> (invalid CIDR address: ${cidrs[bad]})`,
      });
    }
    if (
      cidrs.length > 2 ||
      (cidrs.length === 2 && families[0] === families[1]) ||
      (cidrs.length > 1 && bad >= 0)
    ) {
      errors.push(invalid('spec.podCIDRs', cidrs, 'may specify no more than one CIDR for each IP family'));
    }
  }
  if (!before) return errors;
  const old: JsonObject = isObject(before['spec']) ? before['spec'] : {};
  const oldCidrs = listAt(old, 'podCIDRs').map(String);
  if (oldCidrs.length > 0 && !equal(cidrs, oldCidrs)) {
    errors.push(forbidden('spec.podCIDRs', 'node updates may not change podCIDR except from "" to valid'));
  }
  if (old['providerID'] && spec['providerID'] !== old['providerID']) {
    errors.push(
      forbidden('spec.providerID', 'node updates may not change providerID except from "" to valid'),
    );
  }
  return errors;
}

const LEASE_RULES: readonly Rule[] = [
  ['leaseDurationSeconds', positive],
  ['leaseTransitions', atLeastZero],
];

export function validateLease(lease: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(lease['spec']) ? lease['spec'] : {};
  applyRules(spec, LEASE_RULES, 'spec', errors);
  if (spec['preferredHolder'] && !spec['strategy']) {
    errors.push(forbidden('spec.preferredHolder', 'may not be specified when strategy is not'));
  }
  return errors;
}

const MAX_PRIORITY = 1_000_000_000;

/** Priorities above 1,000,000,000 are reserved for the system. */
export function validatePriorityClass(priorityClass: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const { value, preemptionPolicy, metadata } = priorityClass;
  const isSystem = ['system-cluster-critical', 'system-node-critical'].includes(metadata.name ?? '');
  if (!isSystem && metadata.name?.startsWith('system-')) {
    errors.push(
      forbidden(
        'metadata.name',
        "priority class names with 'system-' prefix are reserved for system use only",
      ),
    );
  }
  if (!isSystem && typeof value === 'number' && value > MAX_PRIORITY) {
    errors.push(forbidden('value', `maximum allowed value of a user defined priority is ${MAX_PRIORITY}`));
  }
  const policies = ['Never', 'PreemptLowerPriority'];
  if (!before && preemptionPolicy === '') errors.push(required('preemptionPolicy'));
  else if (!before && preemptionPolicy !== undefined && !policies.includes(String(preemptionPolicy))) {
    errors.push(notSupported('preemptionPolicy', preemptionPolicy, policies));
  }
  if (!before) return errors;
  if (before['value'] !== value) errors.push(forbidden('value', 'may not be changed in an update.'));
  checkImmutable(priorityClass, before, ['preemptionPolicy'], errors);
  return errors;
}

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
    const allowed = POD_SCOPES[scope] ?? COMPUTE;
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

const BUDGET_RULES: readonly Rule[] = [
  ['minAvailable', countOrPercent, atMostHundredPercent],
  ['maxUnavailable', countOrPercent, atMostHundredPercent],
  [
    'unhealthyPodEvictionPolicy',
    (value, path, errors) => {
      const choices = ['AlwaysAllow', 'IfHealthyBudget'];
      if (value !== undefined && !choices.includes(String(value)))
        errors.push(notSupported(path, value, choices));
    },
  ],
];

export function validateDisruptionBudget(budget: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(budget['spec']) ? budget['spec'] : {};
  if (spec['minAvailable'] !== undefined && spec['maxUnavailable'] !== undefined) {
    errors.push(invalid('spec', spec, 'minAvailable and maxUnavailable cannot be both set'));
  }
  applyRules(spec, BUDGET_RULES, 'spec', errors);
  errors.push(...validateLabelSelector(spec['selector'], 'spec.selector'));
  return errors;
}

export function validateRuntimeClass(runtime: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const handler = runtime['handler'] ?? '';
  if (handler === '') errors.push(required('handler'));
  else
    for (const problem of nameProblems(String(handler), 'label'))
      errors.push(invalid('handler', handler, problem));
  const fixed = at(runtime, 'overhead', 'podFixed');
  // Upstream names the field as a container's.
  validateResources({ limits: fixed }, 'overhead', errors);
  const scheduling = runtime['scheduling'];
  if (isObject(scheduling)) {
    nodeSelector(scheduling['nodeSelector'], 'scheduling.nodeSelector', errors, scheduling, scheduling);
    tolerations(scheduling['tolerations'], 'scheduling.tolerations', errors, scheduling, scheduling);
    const given = listAt(scheduling, 'tolerations').map((one) => JSON.stringify(one));
    given.forEach((one, i) => {
      if (given.indexOf(one) < i)
        errors.push(duplicate(`scheduling.tolerations[${i}]`, listAt(scheduling, 'tolerations')[i]));
    });
  }
  if (before) checkImmutable(runtime, before, ['handler'], errors);
  return errors;
}

const MAX_NOTE = 1024;

/** Immutable fields of an Event from events.k8s.io, which has stricter rules than an Event of the core group. */
const EVENT_IMMUTABLE = [
  'involvedObject',
  'reason',
  'message',
  'type',
  'eventTime',
  'reportingComponent',
  'reportingInstance',
  'action',
  'related',
];
/** Names of fields in refusals: those of the server's internal type. */
const EVENT_NAMES: Readonly<Record<string, string>> = { reportingComponent: 'reportingController' };
const MAX_EVENT_WORD = 128;

/**
 * Validates Events: those of events.k8s.io have their own rules and few mutable fields; those of v1 are as old clients
 * write them.
 */
export function validateEvent(event: ApiObject, before: ApiObject | null, requested: Kind): FieldError[] {
  return requested.group === '' ? validateCoreEvent(event) : validateNewEvent(event, before);
}

function validateCoreEvent(event: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const namespace = at(event, 'involvedObject', 'namespace') ?? '';
  const own = event.metadata.namespace ?? '';
  const matches = namespace === '' ? own === 'default' || own === 'kube-system' : namespace === own;
  if (!matches) errors.push(invalid('involvedObject.namespace', namespace, 'does not match event.namespace'));
  if (event['eventTime']) checkNewFields(event, errors);
  return errors;
}

function checkNewFields(event: ApiObject, errors: FieldError[]): void {
  for (const field of ['reportingComponent', 'reportingInstance', 'action', 'reason']) {
    if (!event[field]) errors.push(required(EVENT_NAMES[field] ?? field));
  }
  const type = event['type'];
  if (type !== 'Normal' && type !== 'Warning') errors.push(invalid('type', type ?? '', 'has invalid value'));
  if (String(event['message'] ?? '').length > MAX_NOTE) errors.push(tooLong('message', MAX_NOTE));
}

function validateNewEvent(event: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  if (!event['eventTime'] && !before) errors.push(required('eventTime'));
  checkNewFields(event, errors);
  const controller = textAt(event, 'reportingComponent');
  for (const problem of nameProblems(controller, 'qualified')) {
    errors.push(invalid('reportingController', controller, problem));
  }
  for (const field of ['reportingInstance', 'action', 'reason']) {
    if (textAt(event, field).length <= MAX_EVENT_WORD) continue;
    errors.push(invalid(field, '', `can have at most ${MAX_EVENT_WORD} characters`));
  }
  if (before) {
    for (const field of EVENT_IMMUTABLE) {
      if (equal(event[field], before[field])) continue;
      errors.push(invalid(EVENT_NAMES[field] ?? field, event[field] ?? '', 'field is immutable'));
    }
  }
  return errors;
}
