import { familyOf } from '../../lib/address.ts';
import { type ApiObject, equal, isObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblem } from './names.ts';

export function validateNamespace(_namespace: ApiObject): FieldError[] {
  return [];
}

export function validateNode(node: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec = isObject(node['spec']) ? node['spec'] : {};
  const old = before && isObject(before['spec']) ? before['spec'] : {};
  for (const field of ['podCIDRs', 'podCIDR', 'providerID']) {
    if (old[field] !== undefined && !equal(old[field], spec[field])) {
      errors.push({
        field: `spec.${field}`,
        reason: 'FieldValueForbidden',
        message: 'Forbidden: node updates may not change ' + field + ' except from "" to valid',
      });
    }
  }
  for (const [i, taint] of listAt(spec, 'taints').entries()) {
    const effects = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'];
    if (!effects.includes(String(taint['effect'])))
      errors.push(notSupported(`spec.taints[${i}].effect`, taint['effect'], effects));
    if (!taint['key']) errors.push(required(`spec.taints[${i}].key`));
  }
  return errors;
}

export function validateSecret(secret: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const data = isObject(secret['data']) ? secret['data'] : {};
  for (const [key, value] of Object.entries(data)) {
    if (!/^[-._a-zA-Z0-9]+$/.test(key)) {
      errors.push(
        invalid(
          `data[${key}]`,
          key,
          "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        ),
      );
    }
    if (typeof value !== 'string' || !/^[A-Za-z0-9+/]*={0,2}$/.test(value)) {
      errors.push(invalid(`data[${key}]`, '<secret contents redacted>', 'must be base64'));
    }
  }
  if (before && before['type'] !== secret['type'])
    errors.push(invalid('type', secret['type'], 'field is immutable'));
  if (before?.['immutable'] === true && !equal(before['data'], secret['data'])) {
    errors.push({
      field: 'data',
      reason: 'FieldValueForbidden',
      message: 'Forbidden: field is immutable when `immutable` is set',
    });
  }
  return errors;
}

export function validateLease(lease: ApiObject): FieldError[] {
  const duration = isObject(lease['spec']) ? lease['spec']['leaseDurationSeconds'] : undefined;
  return duration === undefined || (typeof duration === 'number' && duration > 0)
    ? []
    : [invalid('spec.leaseDurationSeconds', duration, 'must be greater than 0')];
}

export function validateEndpointSlice(slice: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const types = ['IPv4', 'IPv6', 'FQDN'];
  const type = slice['addressType'];
  if (type === undefined) errors.push(required('addressType'));
  else if (!types.includes(String(type))) errors.push(notSupported('addressType', type, types));
  if (before && before['addressType'] !== type)
    errors.push(invalid('addressType', type, 'field is immutable'));
  const endpoints = listAt(slice, 'endpoints');
  if (endpoints.length > 1000) {
    errors.push({
      field: 'endpoints',
      reason: 'FieldValueTooMany',
      message: `Too many: ${endpoints.length}: must have at most 1000 items`,
    });
  }
  for (const [i, endpoint] of endpoints.entries()) {
    const addresses = Array.isArray(endpoint['addresses']) ? endpoint['addresses'] : [];
    const field = `endpoints[${i}].addresses`;
    if (addresses.length === 0) errors.push(required(field, 'must contain at least 1 address'));
    for (const [j, address] of addresses.entries()) {
      const family = familyOf(String(address));
      const wrong =
        (type === 'IPv4' && family !== 'ipv4') ||
        (type === 'IPv6' && family !== 'ipv6') ||
        (type === 'FQDN' && nameProblem(String(address), 'subdomain') !== null);
      if (wrong) {
        errors.push(
          invalid(
            `${field}[${j}]`,
            address,
            type === 'IPv6'
              ? 'must be a valid IPv6 address'
              : type === 'IPv4'
                ? 'must be a valid IPv4 address'
                : 'must be a valid domain name',
          ),
        );
      }
    }
  }
  return errors;
}

const MOST_PRIORITY = 1_000_000_000;

/** Priorities above a thousand million are the system's. */
export function validatePriorityClass(priorityClass: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const { value, preemptionPolicy, metadata } = priorityClass;
  const isSystem = ['system-cluster-critical', 'system-node-critical'].includes(metadata.name ?? '');
  if (!isSystem && metadata.name?.startsWith('system-'))
    errors.push(
      forbidden(
        'metadata.name',
        "priority class names with 'system-' prefix are reserved for system use only",
      ),
    );
  if (!isSystem && typeof value === 'number' && value > MOST_PRIORITY)
    errors.push(forbidden('value', `maximum allowed value of a user defined priority is ${MOST_PRIORITY}`));
  const policies = ['PreemptLowerPriority', 'Never'];
  if (!policies.includes(String(preemptionPolicy)))
    errors.push(notSupported('preemptionPolicy', preemptionPolicy, policies));
  for (const field of ['value', 'preemptionPolicy']) {
    if (before && before[field] !== priorityClass[field])
      errors.push(forbidden(field, 'may not be changed in an update.'));
  }
  return errors;
}
