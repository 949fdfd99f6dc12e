import { startInformer } from '../kube/informer.ts';
import { selects } from '../kube/selector.ts';
import type { KubeObject, Resource } from '../kube/types.ts';
import { type ControllerContext, controllerQueue } from './context.ts';

/** The fields of rbac.authorization.k8s.io/v1 ClusterRole that aggregation reads. */
export interface AggregatedRole extends KubeObject {
  readonly rules?: readonly object[];
  readonly aggregationRule?: {
    readonly clusterRoleSelectors?: readonly { readonly matchLabels?: Readonly<Record<string, string>> }[];
  };
}

const CLUSTER_ROLES: Resource<AggregatedRole> = {
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  plural: 'clusterroles',
  kind: 'ClusterRole',
  namespaced: false,
};

/**
 * Returns the rules of roles that do not have those of the roles that they select yet, by name. Roles that aggregate may be
 * selected themselves, as `edit` is by `admin`: the rules are those after all of them have been aggregated. Pure.
 */
export function aggregatedRules(roles: readonly AggregatedRole[]): Map<string, readonly object[]> {
  const sorted = [...roles].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  const sources = sorted
    .filter(({ aggregationRule }) => aggregationRule?.clusterRoleSelectors)
    .map((role) => ({
      role,
      selected: (role.aggregationRule?.clusterRoleSelectors ?? []).flatMap((selector) =>
        sorted.filter((other) => other !== role && selects(selector, other.metadata?.labels)),
      ),
    }));
  const changed = new Map<string, readonly object[]>();
  // Rules pass one role further each time; roles that select each other cannot exceed this number.
  for (let pass = 0; pass <= sources.length; pass++) {
    let isStable = true;
    for (const { role, selected } of sources) {
      const rules = new Map<string, object>();
      for (const other of selected)
        for (const rule of changed.get(nameOf(other)) ?? other.rules ?? [])
          rules.set(JSON.stringify(rule), rule);
      const wanted = [...rules.values()];
      if (JSON.stringify(wanted) === JSON.stringify(changed.get(nameOf(role)) ?? role.rules ?? [])) continue;
      changed.set(nameOf(role), wanted);
      isStable = false;
    }
    if (isStable) break;
  }
  return changed;
}

const nameOf = (role: AggregatedRole): string => role.metadata?.name ?? '';

/** Keeps the rules of ClusterRoles with an aggregation rule equal to those of the roles that it selects. */
export function startClusterRoleAggregation(context: ControllerContext): void {
  const informer = startInformer({ ...context, resource: CLUSTER_ROLES });
  const queue = controllerQueue(context, 'clusterrole-aggregation', async (name) => {
    const role = informer.get(name);
    const rules = aggregatedRules(informer.list()).get(name);
    if (role && rules) await context.client.update(CLUSTER_ROLES, { ...role, rules });
  });
  const changed = () => {
    // With only some of the roles known, rules would be missing.
    if (!informer.hasSynced) return;
    for (const { metadata, aggregationRule } of informer.list())
      if (aggregationRule) queue.add(metadata?.name ?? '');
  };
  informer.synced.then(changed, () => {
    // The informer ends with the controllers.
  });
  informer.handle({ onAdd: changed, onUpdate: changed, onDelete: changed });
}
