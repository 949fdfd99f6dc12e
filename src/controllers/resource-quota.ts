import { type Amounts, addAmounts } from '../kube/quota/amounts.ts';
import {
  attributesClassesOf,
  countNames,
  limitsDevices,
  matchesScope,
  scopesOf,
  usageOf,
} from '../kube/quota/usage.ts';
import { type KubeObject, keyOf, type Pod, type ResourceQuota, splitKey } from '../kube/types.ts';
import { same } from './canonical.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import type { FollowedKinds } from './followed-kinds.ts';
import { isFinished } from './pods.ts';

/** The objects of a kind in the quota's namespace. */
export interface KindObjects {
  readonly group: string;
  readonly plural: string;
  readonly objects: readonly KubeObject[];
}

/** Computes the status of a quota from the content of its namespace (upstream's resource quota controller). Pure. */
export function quotaStatus(
  quota: ResourceQuota,
  kinds: readonly KindObjects[],
): NonNullable<ResourceQuota['status']> {
  const hard = quota.spec?.hard ?? {};
  const scopes = scopesOf(quota);
  let sum: Amounts = {};
  for (const { group, plural, objects } of kinds) {
    for (const object of objects) {
      if (!scopes.every((scope) => matchesScope(group, plural, object, scope))) continue;
      sum = addAmounts(sum, limitedTo(hard, usageOf(group, plural, object)));
    }
  }
  return { hard, used: Object.fromEntries(Object.keys(hard).map((name) => [name, sum[name] ?? '0'])) };
}

function limitedTo(hard: Amounts, usage: Amounts): Amounts {
  return Object.fromEntries(Object.entries(usage).filter(([name]) => hard[name] !== undefined));
}

/** Reports whether a quota counts objects of the kind. */
function counts(hard: Amounts, group: string, plural: string): boolean {
  if (group === '' && ['pods', 'services', 'persistentvolumeclaims'].includes(plural)) return true;
  if (group === 'resource.k8s.io' && plural === 'resourceclaims' && limitsDevices(hard)) return true;
  return countNames(group, plural).some((name) => hard[name] !== undefined);
}

/** Maintains the usage in the status of ResourceQuotas. The admission of the API server adds increases. */
export function startResourceQuotas(context: ControllerContext, followed: FollowedKinds): void {
  const { resourceQuotas } = context.caches;
  const queue = controllerQueue(context, 'resource-quota', async (key) => {
    const { namespace, name } = splitKey(key);
    const quota = resourceQuotas.get(namespace, name);
    if (!quota || quota.metadata?.deletionTimestamp !== undefined) return;
    const hard = quota.spec?.hard ?? {};
    const kinds: KindObjects[] = followed
      .list()
      .filter(({ resource }) => resource.namespaced && counts(hard, resource.group, resource.plural))
      .map(({ resource, inNamespace }) => ({ ...resource, objects: inNamespace(namespace) }));
    // The latest state, since admission may have written concurrently.
    const current = resourceQuotas.get(namespace, name);
    if (!current) return;
    const status = quotaStatus(current, kinds);
    if (!same(status, current.status)) await resourceQuotas.updateStatus({ ...current, status });
  });
  resourceQuotas.informer.handle({
    onAdd: (quota) => queue.add(keyOf(quota)),
    onUpdate: (quota) => queue.add(keyOf(quota)),
  });
  const recount = (object: KubeObject) => {
    for (const quota of resourceQuotas.inNamespace(object.metadata?.namespace ?? '')) queue.add(keyOf(quota));
  };
  followed.handle(({ resource, informer }) => {
    if (!resource.namespaced) return;
    const looks = usageKey(resource.group, resource.plural);
    informer.handle({
      onAdd: recount,
      onDelete: recount,
      onUpdate(object, before) {
        if (looks && looks(object) !== looks(before)) recount(object);
      },
    });
  });
}

/**
 * Returns a function that extracts the fields of an object that affect which quotas count it, and its usage; null for
 * kinds that are only counted.
 */
function usageKey(group: string, plural: string): ((object: KubeObject) => string) | null {
  if (group !== '') return null;
  switch (plural) {
    case 'pods':
      return (pod: Pod) => `${pod.metadata?.generation} ${isFinished(pod)}`;
    case 'services':
      return (service) => JSON.stringify(usageOf(group, plural, service));
    case 'persistentvolumeclaims':
      return (claim) => JSON.stringify([usageOf(group, plural, claim), attributesClassesOf(claim)]);
    default:
      return null;
  }
}
