import { type Amounts, addAmounts, nano, subtractAmounts } from '../../kube/quota/amounts.ts';
import { amountsAt } from '../../kube/quota/pod-resources.ts';
import { matchesScope, scopesOf, usageOf } from '../../kube/quota/usage.ts';
import { type ApiObject, isObject, listAt, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

/** Reads quotas and writes their usage. */
export interface QuotaStore extends ObjectView {
  /** Replaces status.used of a quota. */
  setUsed(quota: ApiObject, used: Amounts): void;
}

/** The amounts that a write has reserved until it is stored or refused. */
interface Reservation {
  readonly namespace: string;
  readonly name: string;
  readonly delta: Amounts;
}

/**
 * Refuses writes that would exceed a ResourceQuota of their namespace, and adds all others to its status immediately,
 * so that concurrent writes cannot exceed it together. The quota controller subtracts deletions.
 */
export function createResourceQuota(store: QuotaStore): AdmissionPlugin {
  const reserved = new WeakMap<object, Reservation[]>();
  return {
    name: 'ResourceQuota',
    handles: ({ operation, subresource, namespace, resource, oldObject }) =>
      namespace !== '' &&
      resource.resource !== 'namespaces' &&
      (operation === 'CREATE' ? subresource === '' : operation === 'UPDATE') &&
      (subresource === '' || (resource.resource === 'pods' && subresource === 'resize')) &&
      oldObject?.metadata.deletionTimestamp === undefined,
    validate(attributes) {
      const { object, namespace, dryRun } = attributes;
      const quotas = store.list('resourcequotas', namespace);
      if (quotas.length === 0 || !object) return;
      const found = quotas.flatMap((quota) => {
        const delta = quotaDelta(attributes, object, quota);
        return delta ? [{ quota, delta }] : [];
      });
      // All quotas are checked before any is charged: a refusal has nothing to release.
      for (const { quota, delta } of found) checkQuota(attributes, quota, delta);
      if (dryRun) return;
      for (const { quota, delta } of found) {
        store.setUsed(quota, addAmounts(amountsAt(quota, 'status', 'used'), delta));
      }
      reserved.set(
        object,
        found.map(({ quota, delta }) => ({ namespace, name: quota.metadata.name ?? '', delta })),
      );
    },
    release({ object }) {
      if (!object) return;
      for (const { namespace, name, delta } of reserved.get(object) ?? []) {
        const quota = store.get('resourcequotas', `${namespace}/${name}`);
        if (quota) store.setUsed(quota, subtractAmounts(amountsAt(quota, 'status', 'used'), delta));
      }
      reserved.delete(object);
    },
  };
}

/**
 * Returns the amounts that a write adds to a quota's usage; null if the quota does not apply to it. Throws StatusError
 * 403.
 */
function quotaDelta(attributes: AdmissionAttributes, object: ApiObject, quota: ApiObject): Amounts | null {
  const { group, resource } = attributes.resource;
  if (!scopesOf(quota).every((scope) => matchesScope(group, resource, object, scope))) return null;
  const hard = amountsAt(quota, 'status', 'hard');
  const limited = (usage: Amounts): Amounts =>
    Object.fromEntries(Object.entries(usage).filter(([name]) => hard[name] !== undefined));
  const usage = limited(usageOf(group, resource, object));
  if (attributes.operation === 'CREATE' && group === '' && resource === 'pods') {
    checkRequired(attributes, object, quota, hard);
  }
  const { oldObject } = attributes;
  const before =
    oldObject && scopesOf(quota).every((scope) => matchesScope(group, resource, oldObject, scope))
      ? limited(usageOf(group, resource, oldObject))
      : {};
  const delta = subtractAmounts(usage, before);
  // The controller counts decreases after they have happened.
  const more = Object.entries(delta).filter(([, amount]) => nano(amount) > 0n);
  return more.length > 0 ? Object.fromEntries(more) : null;
}

function checkQuota(attributes: AdmissionAttributes, quota: ApiObject, delta: Amounts): void {
  const hard = amountsAt(quota, 'status', 'hard');
  const used = amountsAt(quota, 'status', 'used');
  const exceeded = Object.keys(delta)
    .filter((name) => nano(used[name]) + nano(delta[name]) > nano(hard[name]))
    .sort();
  if (exceeded.length === 0) return;
  const text = (amounts: Amounts) => exceeded.map((name) => `${name}=${amounts[name] ?? '0'}`).join(',');
  throw admissionForbidden(
    attributes,
    `exceeded quota: ${quota.metadata.name}, requested: ${text(delta)}, used: ${text(used)}, limited: ${text(hard)}`,
  );
}

const POD_RESOURCES = ['cpu', 'memory', 'requests.cpu', 'requests.memory', 'limits.cpu', 'limits.memory'];

/** Throws StatusError 403 if a container does not specify the compute resources that a quota limits. */
function checkRequired(
  attributes: AdmissionAttributes,
  pod: ApiObject,
  quota: ApiObject,
  hard: Amounts,
): void {
  const required = POD_RESOURCES.filter((name) => hard[name] !== undefined);
  const missing = new Map<string, string[]>();
  const whole = podLevelNames(pod);
  for (const list of ['containers', 'initContainers']) {
    for (const container of listAt(pod['spec'], list)) {
      const given = new Set([...resourceNames(container['resources']), ...whole]);
      for (const name of required) {
        if (!given.has(name)) missing.set(name, [...(missing.get(name) ?? []), textAt(container, 'name')]);
      }
    }
  }
  if (missing.size === 0) return;
  const text = [...missing]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, containers]) => `${name} for: ${[...new Set(containers)].join(',')}`)
    .join('; ');
  throw admissionForbidden(attributes, `failed quota: ${quota.metadata.name}: must specify ${text}`);
}

const podLevelNames = (pod: ApiObject): string[] =>
  isObject(pod['spec']) ? resourceNames(pod['spec']['resources']) : [];

function resourceNames(resources: unknown): string[] {
  const requests = Object.keys(amountsAt(resources, 'requests'));
  const limits = Object.keys(amountsAt(resources, 'limits'));
  return [
    ...requests.flatMap((name) => [name, `requests.${name}`]),
    ...limits.map((name) => `limits.${name}`),
  ];
}
