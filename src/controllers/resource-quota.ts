import { type Amounts, addAmounts } from '../kube/quota/amounts.ts';
import { countNames, matchesScope, scopesOf, usageOf } from '../kube/quota/usage.ts';
import { type KubeObject, keyOf, type Pod, type ResourceQuota, splitKey } from '../kube/types.ts';
import type { Cache } from './cache.ts';
import { same } from './canonical.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import { namespacedResources } from './namespace.ts';
import { isFinished } from './pods.ts';

/** Kinds that no copy is kept of are counted again after this time. */
const RECOUNT_MS = 5000;

/** The objects of a kind in the quota's namespace. */
export interface KindObjects {
  readonly group: string;
  readonly plural: string;
  readonly objects: readonly KubeObject[];
}

/** The status that a quota should have by what its namespace holds (upstream's resource quota controller). Pure. */
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

/** Whether a quota counts objects of the kind. */
function counts(hard: Amounts, group: string, plural: string): boolean {
  if (group === '' && ['pods', 'services', 'persistentvolumeclaims'].includes(plural)) return true;
  return countNames(group, plural).some((name) => hard[name] !== undefined);
}

/** Keeps the status of ResourceQuotas: what is used of them. The admission of the API server counts what is added. */
export function startResourceQuotas(
  context: ControllerContext,
  followed: readonly Cache<KubeObject>[],
): void {
  const { client, signal } = context;
  const { resourceQuotas } = context.caches;
  const isFollowed = (group: string, plural: string) =>
    followed.some(({ resource }) => resource.group === group && resource.plural === plural);
  /** Kinds that are counted without a copy of them: those of custom resources. */
  const othersOf = async (hard: Amounts) => {
    const names = Object.keys(hard).filter((name) => name.startsWith('count/'));
    const known = new Set(followed.flatMap(({ resource }) => countNames(resource.group, resource.plural)));
    if (names.every((name) => known.has(name))) return [];
    const resources = await namespacedResources(context);
    return resources.filter(({ group, plural }) => !isFollowed(group, plural) && counts(hard, group, plural));
  };
  const queue = controllerQueue(context, 'resource-quota', async (key) => {
    const { namespace, name } = splitKey(key);
    const quota = resourceQuotas.get(namespace, name);
    if (!quota || quota.metadata?.deletionTimestamp !== undefined) return;
    const hard = quota.spec?.hard ?? {};
    const kinds: KindObjects[] = followed
      .filter(({ resource }) => resource.namespaced && counts(hard, resource.group, resource.plural))
      .map(({ resource, inNamespace }) => ({ ...resource, objects: inNamespace(namespace) }));
    const others = await othersOf(hard);
    for (const resource of others) {
      const { items } = await client.list(resource, { namespace, signal });
      kinds.push({ ...resource, objects: items });
    }
    // The latest, as admission may have written meanwhile.
    const current = resourceQuotas.get(namespace, name);
    if (!current) return;
    const status = quotaStatus(current, kinds);
    if (!same(status, current.status)) await resourceQuotas.updateStatus({ ...current, status });
    if (others.length > 0) queue.addAfter(key, RECOUNT_MS);
  });
  resourceQuotas.informer.handle({
    onAdd: (quota) => queue.add(keyOf(quota)),
    onUpdate: (quota) => queue.add(keyOf(quota)),
  });
  const recount = (object: KubeObject) => {
    for (const quota of resourceQuotas.inNamespace(object.metadata?.namespace ?? '')) queue.add(keyOf(quota));
  };
  for (const { resource, informer } of followed) {
    if (!resource.namespaced) continue;
    const looks = usageKey(resource.group, resource.plural);
    informer.handle({
      onAdd: recount,
      onDelete: recount,
      onUpdate(object, before) {
        if (looks && looks(object) !== looks(before)) recount(object);
      },
    });
  }
}

/** What of an object changes its usage; null for kinds that are only counted. */
function usageKey(group: string, plural: string): ((object: KubeObject) => string) | null {
  if (group !== '') return null;
  switch (plural) {
    case 'pods':
      return (pod: Pod) => `${pod.metadata?.generation} ${isFinished(pod)}`;
    case 'services':
    case 'persistentvolumeclaims':
      return (object) => JSON.stringify(usageOf(group, plural, object));
    default:
      return null;
  }
}
