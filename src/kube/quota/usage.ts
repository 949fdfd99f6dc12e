import { at, isObject, type JsonObject, listAt, textAt } from '../json.ts';
import type { KubeObject } from '../types.ts';
import { STORAGE_CLASS_ANNOTATION } from '../well-known-labels.ts';
import type { Amounts } from './amounts.ts';
import { amountsAt, podAmounts } from './pod-resources.ts';

/** Kinds that a quota counts by their plain name, in addition to count/RESOURCE.GROUP for every kind. */
const COUNTED = new Set([
  'configmaps',
  'persistentvolumeclaims',
  'pods',
  'replicationcontrollers',
  'resourcequotas',
  'secrets',
  'services',
]);

/** Returns the names under which a resource is counted: count/deployments.apps, count/pods and pods. */
export function countNames(group: string, resource: string): string[] {
  const full = `count/${resource}${group === '' ? '' : `.${group}`}`;
  return group === '' && COUNTED.has(resource) ? [full, resource] : [full];
}

/**
 * Returns the amounts of a quota that one object uses, by the resource names of a quota (upstream's
 * pkg/quota/v1/evaluator/core).
 */
export function usageOf(group: string, resource: string, object: KubeObject): Amounts {
  const usage: Record<string, string> = {};
  for (const name of countNames(group, resource)) usage[name] = '1';
  if (group === 'resource.k8s.io' && resource === 'resourceclaims')
    return { ...usage, ...deviceUsage(object) };
  if (group !== '') return usage;
  switch (resource) {
    case 'pods':
      return isEnded(object) ? { 'count/pods': '1' } : { ...usage, ...podUsage(object) };
    case 'services':
      return { ...usage, ...serviceUsage(object) };
    case 'persistentvolumeclaims':
      return { ...usage, ...claimUsage(object) };
    default:
      return usage;
  }
}

const isEnded = (pod: KubeObject) => ['Succeeded', 'Failed'].includes(textAt(pod, 'status', 'phase'));

function podUsage(pod: KubeObject): Amounts {
  const usage: Record<string, string> = {};
  for (const [name, amount] of Object.entries(podAmounts(pod, 'requests'))) {
    if (name === 'cpu' || name === 'memory' || name === 'ephemeral-storage' || name.startsWith('hugepages-'))
      usage[name] = amount;
    usage[`requests.${name}`] = amount;
  }
  for (const [name, amount] of Object.entries(podAmounts(pod, 'limits'))) {
    if (['cpu', 'memory', 'ephemeral-storage'].includes(name)) usage[`limits.${name}`] = amount;
  }
  return usage;
}

function serviceUsage(service: KubeObject): Amounts {
  const type = textAt(service, 'spec', 'type');
  const ports = listAt(service, 'spec', 'ports');
  const allocates = at(service, 'spec', 'allocateLoadBalancerNodePorts') !== false;
  const nodePorts =
    type === 'NodePort'
      ? ports.length
      : type === 'LoadBalancer'
        ? allocates
          ? ports.length
          : ports.filter(({ nodePort }) => typeof nodePort === 'number' && nodePort !== 0).length
        : 0;
  return {
    'services.nodeports': String(nodePorts),
    'services.loadbalancers': type === 'LoadBalancer' ? '1' : '0',
  };
}

function claimUsage(claim: KubeObject): Amounts {
  const asked = amountsAt(claim, 'spec', 'resources', 'requests')['storage'];
  const allocated = amountsAt(claim, 'status', 'allocatedResources')['storage'];
  const storage = allocated ?? asked;
  const storageClass =
    textAt(claim, 'spec', 'storageClassName') ||
    (claim.metadata?.annotations?.[STORAGE_CLASS_ANNOTATION] ?? '');
  const usage: Record<string, string> = storage === undefined ? {} : { 'requests.storage': storage };
  if (storageClass === '') return usage;
  const prefix = `${storageClass}.storageclass.storage.k8s.io/`;
  usage[`${prefix}persistentvolumeclaims`] = '1';
  if (storage !== undefined) usage[`${prefix}requests.storage`] = storage;
  return usage;
}

const DEVICES = '.deviceclass.resource.k8s.io/devices';
/** The most devices of one claim, which a request for all devices may get (AllocationResultsMaxSize). */
const MAX_DEVICES = 32;

/** Reports whether a quota limits the devices of a class. */
export const limitsDevices = (hard: Amounts): boolean =>
  Object.keys(hard).some((name) => name.endsWith(DEVICES));

/** Returns the devices that a ResourceClaim requests, by class; of alternatives, the most of each class. */
function deviceUsage(claim: KubeObject): Amounts {
  const usage = new Map<string, number>();
  for (const request of listAt(claim, 'spec', 'devices', 'requests')) {
    const exact = request['exactly'];
    const alternatives = isObject(exact) ? [exact] : listAt(request, 'firstAvailable');
    const most = new Map<string, number>();
    for (const one of alternatives) {
      const count = one['allocationMode'] === 'All' ? MAX_DEVICES : Number(one['count'] ?? 1);
      const name = textAt(one, 'deviceClassName');
      most.set(name, Math.max(most.get(name) ?? 0, count));
    }
    for (const [name, count] of most) usage.set(name, (usage.get(name) ?? 0) + count);
  }
  return Object.fromEntries([...usage].map(([name, count]) => [`${name}${DEVICES}`, String(count)]));
}

/** Returns the scopes of a quota as requirements: a plain scope is one that must exist. */
export function scopesOf(quota: KubeObject): JsonObject[] {
  const plain = at(quota, 'spec', 'scopes');
  return [
    ...(Array.isArray(plain)
      ? plain.map((scopeName) => ({ scopeName, operator: 'Exists' }) as JsonObject)
      : []),
    ...listAt(quota, 'spec', 'scopeSelector', 'matchExpressions'),
  ];
}

/** Returns the names of the VolumeAttributesClasses that a claim requests, has, or is being changed to. */
export function attributesClassesOf(claim: KubeObject): string[] {
  const names = [
    textAt(claim, 'spec', 'volumeAttributesClassName'),
    textAt(claim, 'status', 'currentVolumeAttributesClassName'),
    textAt(claim, 'status', 'modifyVolumeStatus', 'targetVolumeAttributesClassName'),
  ];
  return [...new Set(names.filter((name) => name !== ''))];
}

/** Reports whether an object is in a scope. Only pods (and claims, by their classes) have scopes. */
export function matchesScope(
  group: string,
  resource: string,
  object: KubeObject,
  scope: JsonObject,
): boolean {
  if (group !== '') return false;
  if (resource === 'persistentvolumeclaims') {
    if (scope['scopeName'] !== 'VolumeAttributesClass') return false;
    const classes = attributesClassesOf(object);
    return classes.length === 0 ? matchesValue('', scope) : classes.some((name) => matchesValue(name, scope));
  }
  if (resource !== 'pods') return false;
  const spec = at(object, 'spec');
  switch (scope['scopeName']) {
    case 'Terminating':
      return typeof at(spec, 'activeDeadlineSeconds') === 'number';
    case 'NotTerminating':
      return typeof at(spec, 'activeDeadlineSeconds') !== 'number';
    case 'BestEffort':
      return isBestEffort(object);
    case 'NotBestEffort':
      return !isBestEffort(object);
    case 'PriorityClass':
      return matchesValue(textAt(spec, 'priorityClassName'), scope);
    case 'CrossNamespacePodAffinity':
      return hasCrossNamespaceAffinity(spec);
    default:
      return false;
  }
}

function matchesValue(value: string, { operator, values }: JsonObject): boolean {
  const list = Array.isArray(values) ? values : [];
  switch (operator) {
    case 'Exists':
      return value !== '';
    case 'DoesNotExist':
      return value === '';
    case 'In':
      return list.includes(value);
    case 'NotIn':
      return !list.includes(value);
    default:
      return false;
  }
}

function isBestEffort(pod: KubeObject): boolean {
  const amounts = [
    amountsAt(pod, 'spec', 'resources', 'requests'),
    amountsAt(pod, 'spec', 'resources', 'limits'),
    ...['containers', 'initContainers'].flatMap((list) =>
      listAt(pod, 'spec', list).flatMap((container) => [
        amountsAt(container, 'resources', 'requests'),
        amountsAt(container, 'resources', 'limits'),
      ]),
    ),
  ];
  return amounts.every(({ cpu, memory }) => cpu === undefined && memory === undefined);
}

function hasCrossNamespaceAffinity(spec: unknown): boolean {
  const terms = ['podAffinity', 'podAntiAffinity'].flatMap((kind) => [
    ...listAt(spec, 'affinity', kind, 'requiredDuringSchedulingIgnoredDuringExecution'),
    ...listAt(spec, 'affinity', kind, 'preferredDuringSchedulingIgnoredDuringExecution').map((term) =>
      isObject(term['podAffinityTerm']) ? term['podAffinityTerm'] : {},
    ),
  ]);
  return terms.some((term) => listAt(term, 'namespaces').length > 0 || isObject(term['namespaceSelector']));
}
