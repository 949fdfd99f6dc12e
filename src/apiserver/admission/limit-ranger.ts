import { type Amounts, nano } from '../../kube/quota/amounts.ts';
import { amountsAt, podAmounts } from '../../kube/quota/pod-resources.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionPlugin } from './plugin.ts';
import { admissionForbidden, joinReasons } from './refusal.ts';

/**
 * Sets the default resources of the namespace's LimitRanges on containers, and refuses resources outside their limits.
 */
export function createLimitRanger(view: ObjectView): AdmissionPlugin {
  const items = (namespace: string) =>
    view.list('limitranges', namespace).flatMap((range) => listAt(range, 'spec', 'limits'));
  return {
    name: 'LimitRanger',
    handles({ resource, subresource, operation, oldObject }) {
      if (resource.group !== '' || oldObject?.metadata.deletionTimestamp !== undefined) return false;
      if (resource.resource === 'pods') {
        return subresource === 'resize'
          ? operation === 'UPDATE'
          : subresource === '' && operation === 'CREATE';
      }
      return (
        resource.resource === 'persistentvolumeclaims' &&
        subresource === '' &&
        (operation === 'CREATE' || operation === 'UPDATE')
      );
    },
    mutate({ object, resource, namespace, operation }) {
      if (!object || resource.resource !== 'pods' || operation !== 'CREATE') return;
      for (const item of items(namespace)) if (item['type'] === 'Container') setDefaults(object, item);
    },
    validate(attributes) {
      const { object, resource, namespace } = attributes;
      if (!object) return;
      const errors =
        resource.resource === 'pods'
          ? items(namespace).flatMap((item) => podProblems(object, item))
          : items(namespace)
              .filter(({ type }) => type === 'PersistentVolumeClaim')
              .flatMap((item) => claimProblems(object, item));
      if (errors.length > 0) throw admissionForbidden(attributes, joinReasons(errors));
    },
  };
}

const ANNOTATION = 'kubernetes.io/limit-ranger';

function setDefaults(pod: ApiObject, item: JsonObject): void {
  const limits = defaultLimits(item);
  const requests = defaultRequests(item, limits);
  const notes: string[] = [];
  const lists = ['containers', 'initContainers'] as const;
  for (const list of lists) {
    for (const container of listAt(pod['spec'], list)) {
      const resources = isObject(container['resources']) ? container['resources'] : {};
      const own = { limits: amountsAt(resources, 'limits'), requests: amountsAt(resources, 'requests') };
      // An omitted request equals the container's own limit, not the default request.
      const merged = {
        limits: { ...limits, ...own.limits },
        requests: { ...requests, ...pick(own.limits, requests), ...own.requests },
      };
      for (const [field, before] of Object.entries(own)) {
        const after = merged[field as keyof typeof merged];
        const added = Object.keys(after).filter((name) => !Object.hasOwn(before, name));
        if (added.length === 0) continue;
        resources[field] = { ...after };
        const what = list === 'containers' ? 'container' : 'init container';
        notes.push(
          `${added.sort().join(', ')} ${field.slice(0, -1)} for ${what} ${String(container['name'])}`,
        );
      }
      container['resources'] = resources;
    }
  }
  if (notes.length === 0) return;
  pod.metadata.annotations = {
    ...pod.metadata.annotations,
    [ANNOTATION]: `LimitRanger plugin set: ${notes.join('; ')}`,
  };
}

const pick = (from: Amounts, names: Amounts): Amounts =>
  Object.fromEntries(Object.entries(from).filter(([name]) => Object.hasOwn(names, name)));

/** As SetDefaults_LimitRangeItem: the default limit defaults to the maximum. */
function defaultLimits(item: JsonObject): Amounts {
  return { ...amountsAt(item, 'max'), ...amountsAt(item, 'default') };
}

function defaultRequests(item: JsonObject, limits: Amounts): Amounts {
  return { ...limits, ...amountsAt(item, 'min'), ...amountsAt(item, 'defaultRequest') };
}

function podProblems(pod: ApiObject, item: JsonObject): string[] {
  if (item['type'] === 'Container') {
    return ['containers', 'initContainers'].flatMap((list) =>
      listAt(pod['spec'], list).flatMap((container) =>
        problems(
          'Container',
          item,
          amountsAt(container, 'resources', 'requests'),
          amountsAt(container, 'resources', 'limits'),
        ),
      ),
    );
  }
  if (item['type'] !== 'Pod') return [];
  return problems('Pod', item, podAmounts(pod, 'requests'), podAmounts(pod, 'limits'));
}

function problems(type: string, item: JsonObject, requests: Amounts, limits: Amounts): string[] {
  const errors: string[] = [];
  for (const [name, min] of Object.entries(amountsAt(item, 'min'))) {
    errors.push(...belowMin(type, name, min, requests[name], limits[name]));
  }
  for (const [name, max] of Object.entries(amountsAt(item, 'max'))) {
    errors.push(...aboveMax(type, name, max, requests[name], limits[name]));
  }
  for (const [name, ratio] of Object.entries(amountsAt(item, 'maxLimitRequestRatio'))) {
    errors.push(...aboveRatio(type, name, ratio, requests[name], limits[name]));
  }
  return errors;
}

function belowMin(type: string, name: string, min: string, request?: string, limit?: string): string[] {
  const head = `minimum ${name} usage per ${type} is ${min}`;
  if (request === undefined) return [`${head}.  No request is specified`];
  if (nano(request) < nano(min)) return [`${head}, but request is ${request}`];
  if (limit !== undefined && nano(limit) < nano(min)) return [`${head}, but limit is ${limit}`];
  return [];
}

function aboveMax(type: string, name: string, max: string, request?: string, limit?: string): string[] {
  const head = `maximum ${name} usage per ${type} is ${max}`;
  if (limit === undefined) return [`${head}.  No limit is specified`];
  if (nano(limit) > nano(max)) return [`${head}, but limit is ${limit}`];
  if (request !== undefined && nano(request) > nano(max)) return [`${head}, but request is ${request}`];
  return [];
}

function aboveRatio(type: string, name: string, ratio: string, request?: string, limit?: string): string[] {
  const head = `${name} max limit to request ratio per ${type} is ${ratio}`;
  if (request === undefined || nano(request) === 0n)
    return [`${head}, but no request is specified or request is 0`];
  if (limit === undefined || nano(limit) === 0n) return [`${head}, but no limit is specified or limit is 0`];
  const given = Number(nano(limit)) / Number(nano(request));
  const max = Number(nano(ratio)) / 1e9;
  return given > max ? [`${head}, but provided ratio is ${given.toFixed(6)}`] : [];
}

function claimProblems(claim: ApiObject, item: JsonObject): string[] {
  const requests = amountsAt(claim, 'spec', 'resources', 'requests');
  const errors: string[] = [];
  for (const [name, min] of Object.entries(amountsAt(item, 'min'))) {
    errors.push(...belowMin('PersistentVolumeClaim', name, min, requests[name]));
  }
  for (const [name, max] of Object.entries(amountsAt(item, 'max'))) {
    const head = `maximum ${name} usage per PersistentVolumeClaim is ${max}`;
    const request = requests[name];
    if (request === undefined) errors.push(`${head}.  No request is specified`);
    else if (nano(request) > nano(max)) errors.push(`${head}, but request is ${request}`);
  }
  return errors;
}
