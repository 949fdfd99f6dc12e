import {
  type DisruptionBudgetSpec,
  disruptionBudgetState,
  isHealthy,
  type Scale,
} from '../../kube/disruption-budget.ts';
import type { Pod } from '../../kube/types.ts';
import { selectorMatches } from '../label-selector.ts';
import { type ApiObject, at, isObject } from '../object.ts';
import { StatusError } from '../status-error.ts';

/** Returns the stored objects of a collection in one namespace. */
export type Listing = (collection: string, namespace: string) => readonly ApiObject[];

/**
 * Refuses an eviction that the pod's PodDisruptionBudget does not allow: 429, after which kubectl drain retries.
 * Computed from the stored state at that moment, so that concurrent evictions cannot exceed the budget together.
 */
export function checkEviction(pod: ApiObject, list: Listing): void {
  const { namespace = '', labels = {} } = pod.metadata;
  const phase = at(pod, 'status', 'phase');
  // Pods that do not run do not count against the budget.
  if (phase !== 'Running' || pod.metadata.deletionTimestamp !== undefined) return;
  const budgets = list('poddisruptionbudgets.policy', namespace).filter((budget) => {
    const selector = at(budget, 'spec', 'selector');
    return isObject(selector) && selectorMatches(selector, labels);
  });
  const [budget] = budgets;
  if (!budget) return;
  if (budgets.length > 1) {
    throw new StatusError(
      500,
      'InternalError',
      'This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.',
    );
  }
  const selector = at(budget, 'spec', 'selector');
  const pods = list('pods', namespace).filter(
    (other) => isObject(selector) && selectorMatches(selector, other.metadata.labels ?? {}),
  );
  const state = disruptionBudgetState(
    at(budget, 'spec') as DisruptionBudgetSpec,
    pods as unknown as readonly Pod[],
    (other) => scaleOf(other as unknown as ApiObject, list),
  );
  if (!isHealthy(pod as unknown as Pod)) {
    const always = at(budget, 'spec', 'unhealthyPodEvictionPolicy') === 'AlwaysAllow';
    if (always || state.currentHealthy >= state.desiredHealthy) return;
  } else if (state.disruptionsAllowed > 0) return;
  const { name } = budget.metadata;
  throw new StatusError(
    429,
    'TooManyRequests',
    "Cannot evict pod as it would violate the pod's disruption budget.",
    {
      causes: [
        {
          reason: 'DisruptionBudget',
          message: `The disruption budget ${name} needs ${state.desiredHealthy} healthy pods and has ${state.currentHealthy} currently`,
        },
      ],
    },
  );
}

const CONTROLLERS: Readonly<Record<string, string>> = {
  ReplicaSet: 'replicasets.apps',
  Deployment: 'deployments.apps',
  StatefulSet: 'statefulsets.apps',
  ReplicationController: 'replicationcontrollers',
};

/** Returns the scale of the topmost owner: the Deployment of a pod's ReplicaSet. */
function scaleOf(object: ApiObject, list: Listing): Scale | null {
  const owner = (object.metadata.ownerReferences ?? []).find(({ controller }) => controller === true);
  const collection = CONTROLLERS[owner?.kind ?? ''];
  if (!owner || !collection) return null;
  const found = list(collection, object.metadata.namespace ?? '').find(
    ({ metadata }) => metadata.uid === owner.uid,
  );
  if (!found) return null;
  return scaleOf(found, list) ?? { uid: owner.uid, replicas: Number(at(found, 'spec', 'replicas') ?? 1) };
}
