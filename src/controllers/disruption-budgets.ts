import { disruptionBudgetState, isHealthy, type Scale } from '../kube/disruption-budget.ts';
import { selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import { type KubeObject, keyOf, type Pod, type PodDisruptionBudget, splitKey } from '../kube/types.ts';
import { same } from './canonical.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import { controllerOf } from './ownership.ts';
import { isFinished } from './pods.ts';

/**
 * Writes the state of PodDisruptionBudgets to their status, for users. Evictions do not depend on it: the API server
 * computes the state at that moment.
 */
export function startDisruptionBudgets(context: ControllerContext): void {
  const { disruptionBudgets, pods, replicaSets, deployments, statefulSets, replicationControllers } =
    context.caches;
  const queue = controllerQueue(context, 'disruption-budgets', async (key) => {
    const { namespace, name } = splitKey(key);
    const budget = disruptionBudgets.get(namespace, name);
    if (!budget?.spec || budget.metadata?.deletionTimestamp !== undefined) return;
    const selected = pods
      .inNamespace(namespace)
      .filter((pod) => selects(budget.spec?.selector, pod.metadata?.labels));
    const state = disruptionBudgetState(budget.spec, selected, scaleOf);
    const status = {
      ...state,
      observedGeneration: budget.metadata?.generation ?? 0,
      conditions: [allowedCondition(budget, state.disruptionsAllowed, context.clock.now())],
    };
    const before = { ...budget.status } as Record<string, unknown>;
    if (Object.entries(status).every(([field, value]) => same(before[field], value))) return;
    await disruptionBudgets.patch(budget, 'merge', { status }, 'status');
  });
  const scaleOf = (object: KubeObject): Scale | null => {
    const owner = controllerOf(object);
    const namespace = object.metadata?.namespace;
    const found =
      owner?.kind === 'ReplicaSet'
        ? replicaSets.get(namespace, owner.name)
        : owner?.kind === 'Deployment'
          ? deployments.get(namespace, owner.name)
          : owner?.kind === 'StatefulSet'
            ? statefulSets.get(namespace, owner.name)
            : owner?.kind === 'ReplicationController'
              ? replicationControllers.get(namespace, owner.name)
              : undefined;
    if (!found || found.metadata?.uid !== owner?.uid) return null;
    return scaleOf(found) ?? { uid: found.metadata?.uid ?? '', replicas: found.spec?.replicas ?? 1 };
  };
  const addAll = (object: KubeObject) => {
    for (const budget of disruptionBudgets.inNamespace(object.metadata?.namespace ?? ''))
      queue.add(keyOf(budget));
  };
  disruptionBudgets.informer.handle({
    onAdd: (budget) => queue.add(keyOf(budget)),
    onUpdate: (budget) => queue.add(keyOf(budget)),
  });
  const looks = (pod: Pod) =>
    JSON.stringify([isHealthy(pod), isFinished(pod), pod.metadata?.labels, pod.metadata?.ownerReferences]);
  pods.informer.handle({
    onAdd: addAll,
    onUpdate(pod, before) {
      if (looks(pod) !== looks(before)) addAll(pod);
    },
    onDelete: addAll,
  });
  for (const { informer } of [replicaSets, deployments, statefulSets, replicationControllers]) {
    informer.handle({
      onUpdate(object: KubeObject & { spec?: { replicas?: number } }, before: typeof object) {
        if (object.spec?.replicas !== before.spec?.replicas) addAll(object);
      },
    });
  }
}

/** Builds the condition that shows whether the budget allows a disruption now, for users and `kubectl wait`. */
function allowedCondition(budget: PodDisruptionBudget, allowed: number, now: number) {
  const status = allowed > 0 ? 'True' : 'False';
  const before = budget.status?.conditions?.find(({ type }) => type === 'DisruptionAllowed');
  return {
    type: 'DisruptionAllowed',
    status,
    reason: allowed > 0 ? 'SufficientPods' : 'InsufficientPods',
    message: '',
    observedGeneration: budget.metadata?.generation ?? 0,
    lastTransitionTime:
      before?.status === status ? (before.lastTransitionTime ?? timestamp(now)) : timestamp(now),
  };
}
