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

/** The stored objects of a collection, of one namespace. */
export type Listing = (collection: string, namespace: string) => readonly ApiObject[];

/**
 * Refuses the eviction of a pod that its PodDisruptionBudget cannot spare: 429, after which kubectl drain tries again.
 * Reckoned from what is stored at that moment, so that of many evictions at once none too many is let through.
 */
export function checkEviction(pod: ApiObject, list: Listing): void {
  const { namespace = '', labels = {} } = pod.metadata;
  const phase = at(pod, 'status', 'phase');
  // What does not run yet, or any more, is nothing that is lost.
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

/** Of what is at the top: the Deployment of the ReplicaSet of a pod. */
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
