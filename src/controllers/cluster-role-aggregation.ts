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

/** Returns the aggregated rules of the roles that a role's selectors match; null if it already has them. Pure. */
function aggregatedRules(role: AggregatedRole, roles: readonly AggregatedRole[]): readonly object[] | null {
  const selectors = role.aggregationRule?.clusterRoleSelectors;
  if (!selectors) return null;
  const sorted = [...roles].sort((a, b) => ((a.metadata?.name ?? '') < (b.metadata?.name ?? '') ? -1 : 1));
  const rules = new Map<string, object>();
  for (const selector of selectors) {
    for (const other of sorted) {
      if (other.metadata?.name === role.metadata?.name) continue;
      if (!selects(selector, other.metadata?.labels)) continue;
      for (const rule of other.rules ?? []) rules.set(JSON.stringify(rule), rule);
    }
  }
  const wanted = [...rules.values()];
  return JSON.stringify(wanted) === JSON.stringify(role.rules ?? []) ? null : wanted;
}

/** Keeps the rules of ClusterRoles with an aggregation rule equal to those of the roles that it selects. */
export function startClusterRoleAggregation(context: ControllerContext): void {
  const informer = startInformer({ ...context, resource: CLUSTER_ROLES });
  const queue = controllerQueue(context, 'clusterrole-aggregation', async (name) => {
    const role = informer.list().find(({ metadata }) => metadata?.name === name);
    if (!role) return;
    const rules = aggregatedRules(role, informer.list());
    if (rules) await context.client.update(CLUSTER_ROLES, { ...role, rules });
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
