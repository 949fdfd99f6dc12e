import { ownMember } from '../../lib/own-member.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  tooLong,
} from '../status-error.ts';
import { checkCidr } from './addresses.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { repeats } from './repeats.ts';
import { validateResources } from './resources.ts';
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
    if (Object.hasOwn(binary, key))
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
    for (const key of ownMember(SECRET_KEYS, type) ?? []) {
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
    for (const i of repeats(given))
      errors.push(duplicate(`scheduling.tolerations[${i}]`, listAt(scheduling, 'tolerations')[i]));
  }
  if (before) checkImmutable(runtime, before, ['handler'], errors);
  return errors;
}
