import { isExtendedResource } from '../../kube/extended-resources.ts';
import { quantityNano } from '../../kube/quantity-text.ts';
import { ownMember } from '../../lib/own-member.ts';
import { isObject, type JsonObject } from '../object.ts';
import { type FieldError, forbidden, invalid, required } from '../status-error.ts';
import { nameProblems } from './names.ts';

const CONTAINER_RESOURCES = new Set(['cpu', 'memory', 'ephemeral-storage']);
/** Resources of quotas, and of containers and volumes. */
export const QUOTA_RESOURCES = [
  'cpu',
  'memory',
  'ephemeral-storage',
  'requests.cpu',
  'requests.memory',
  'requests.storage',
  'requests.ephemeral-storage',
  'limits.cpu',
  'limits.memory',
  'limits.ephemeral-storage',
  'pods',
  'resourcequotas',
  'services',
  'replicationcontrollers',
  'secrets',
  'persistentvolumeclaims',
  'configmaps',
  'services.nodeports',
  'services.loadbalancers',
];
const RESOURCES = new Set([...QUOTA_RESOURCES, 'storage']);
const WHOLE = 10n ** 9n;

const isHugePages = (name: string) => name.startsWith('hugepages-');
const isNative = (name: string) => !name.includes('/') || name.includes('kubernetes.io/');

/** Checks that a quantity is not negative. */
function checkQuantity(value: unknown, path: string, errors: FieldError[]): void {
  if ((quantityNano(value) ?? 0n) < 0n) {
    errors.push(invalid(path, value, 'must be greater than or equal to 0'));
  }
}

/** Checks that a quantity is not negative, and whole if the resource is indivisible. */
export function checkResourceAmount(name: string, value: unknown, path: string, errors: FieldError[]): void {
  checkQuantity(value, path, errors);
  const whole =
    isExtendedResource(name) ||
    [
      'pods',
      'services',
      'secrets',
      'configmaps',
      'persistentvolumeclaims',
      'replicationcontrollers',
      'resourcequotas',
      'services.loadbalancers',
      'services.nodeports',
    ].includes(name) ||
    name.startsWith('count/');
  if (whole && (quantityNano(value) ?? 0n) % WHOLE !== 0n)
    errors.push(invalid(path, value, 'must be an integer'));
}

/** Checks the name of a resource; returns false if it is not a qualified name. */
export function checkResourceName(name: string, path: string, errors: FieldError[]): boolean {
  const problems = nameProblems(name, 'qualified');
  for (const problem of problems) errors.push(invalid(path, name, problem));
  if (problems.length > 0) return false;
  if (!name.includes('/') && !RESOURCES.has(name) && !isHugePages(name.replace('requests.', ''))) {
    errors.push(invalid(path, name, 'must be a standard resource type or fully qualified'));
  }
  return true;
}

/** Checks the name of a resource that a container may request. */
export function checkContainerResourceName(name: string, path: string, errors: FieldError[]): void {
  if (!checkResourceName(name, path, errors)) return;
  if (!name.includes('/')) {
    if (!CONTAINER_RESOURCES.has(name) && !isHugePages(name)) {
      errors.push(invalid(path, name, 'must be a standard resource for containers'));
    }
  } else if (isNative(name) && !name.startsWith('kubernetes.io/batch-')) {
    errors.push(invalid(path, name, "doesn't follow extended resource name standard"));
  }
}

/** Validates requests and limits of a container. */
export function validateResources(
  resources: unknown,
  path: string,
  errors: FieldError[],
  claims: ReadonlySet<string> = new Set(),
): void {
  if (!isObject(resources)) return;
  const limits = isObject(resources['limits']) ? resources['limits'] : {};
  const requests = isObject(resources['requests']) ? resources['requests'] : {};
  for (const [name, value] of Object.entries(limits)) {
    checkContainerResourceName(name, `${path}.limits[${name}]`, errors);
    checkResourceAmount(name, value, `${path}.limits[${name}]`, errors);
  }
  for (const [name, value] of Object.entries(requests)) {
    checkContainerResourceName(name, `${path}.requests[${name}]`, errors);
    checkResourceAmount(name, value, `${path}.requests[${name}]`, errors);
    const limit = ownMember(limits, name);
    if (limit !== undefined) {
      const [asked, most] = [quantityNano(value) ?? 0n, quantityNano(limit) ?? 0n];
      if (isExtendedResource(name) || isHugePages(name)) {
        if (asked !== most)
          errors.push(invalid(`${path}.requests`, value, `must be equal to ${name} limit of ${limit}`));
      } else if (asked > most) {
        errors.push(
          invalid(`${path}.requests`, value, `must be less than or equal to ${name} limit of ${limit}`),
        );
      }
    } else if (isExtendedResource(name) || isHugePages(name)) {
      errors.push(required(`${path}.limits`, 'Limit must be set for non overcommitable resources'));
    }
  }
  const names = new Set([...Object.keys(limits), ...Object.keys(requests)]);
  if ([...names].some(isHugePages) && !names.has('cpu') && !names.has('memory')) {
    errors.push(forbidden(path, 'HugePages require cpu or memory'));
  }
  for (const [i, claim] of (Array.isArray(resources['claims']) ? resources['claims'] : []).entries()) {
    const name = String((claim as JsonObject)['name'] ?? '');
    if (name === '') errors.push(required(`${path}.claims[${i}]`));
    else if (!claims.has(name)) {
      errors.push({
        field: `${path}.claims[${i}]`,
        reason: 'FieldValueNotFound',
        message: `Not found: ${JSON.stringify(name)}`,
      });
    }
  }
}
