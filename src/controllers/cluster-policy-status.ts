import { hasReason } from '../kube/client.ts';
import { timestamp } from '../kube/timestamp.ts';
import {
  type ClusterPolicyCondition,
  type ClusterPolicyKind,
  type ClusterPolicyObject,
  clusterPolicyKey,
  readClusterPolicy,
  splitClusterPolicyKey,
} from '../policy/cluster-policy-reader.ts';
import { inServedVersion } from '../policy/follow-cluster-policies.ts';
import { type ContextWith, controllerQueue } from './context.ts';

/**
 * Upstream's API defines the list `status.conditions` and leaves its types to implementations; this is the type that
 * policies of the Gateway API report (PolicyConditionAccepted).
 */
const ACCEPTED = 'Accepted';
/** A message has at most 32768 characters (meta/v1 Condition). */
const MAX_FIELDS = 20;

/**
 * Returns the conditions of a policy of the whole cluster: those of other programs, and whether all its fields are supported.
 * `now`: milliseconds since 1970. Null: they are up to date.
 */
export function clusterPolicyConditions(
  kind: ClusterPolicyKind,
  object: ClusterPolicyObject,
  now: number,
): ClusterPolicyCondition[] | null {
  const { unsupported } = readClusterPolicy(kind, object);
  const known = object.status?.conditions ?? [];
  const before = known.find(({ type }) => type === ACCEPTED);
  const status = unsupported.length === 0 ? 'True' : 'False';
  const next: ClusterPolicyCondition = {
    type: ACCEPTED,
    status,
    reason: unsupported.length === 0 ? 'Accepted' : 'UnsupportedField',
    message: messageFor(unsupported),
    observedGeneration: object.metadata?.generation ?? 0,
    lastTransitionTime: before?.status === status ? before.lastTransitionTime : timestamp(now),
  };
  const isCurrent =
    before !== undefined &&
    before.status === next.status &&
    before.reason === next.reason &&
    before.message === next.message &&
    before.observedGeneration === next.observedGeneration;
  return isCurrent ? null : [...known.filter(({ type }) => type !== ACCEPTED), next];
}

function messageFor(unsupported: readonly string[]): string {
  if (unsupported.length === 0) return 'all fields are supported';
  const more = unsupported.length > MAX_FIELDS ? ` and ${unsupported.length - MAX_FIELDS} more` : '';
  return `not supported: ${unsupported.slice(0, MAX_FIELDS).join(', ')}${more}; a rule that accepts matches nothing by such a field, and any other rule with it denies everything`;
}

export interface ClusterPolicyStatus {
  /** Announces a new or changed policy. */
  changed(kind: ClusterPolicyKind, name: string): void;
}

/** Writes the conditions of the policies of the whole cluster. */
export function startClusterPolicyStatus(context: ContextWith<never>): ClusterPolicyStatus {
  const queue = controllerQueue(context, 'cluster-network-policy-status', async (key) => {
    const { kind, name } = splitClusterPolicyKey(key);
    try {
      await inServedVersion(kind, async (resource) => {
        const object = await context.client.get(resource, name);
        const conditions = clusterPolicyConditions(kind, object, context.clock.now());
        if (!conditions) return;
        await context.client.updateStatus(resource, { ...object, status: { ...object.status, conditions } });
      });
    } catch (error) {
      // The policy or its definition was deleted, or the definition has no status.
      if (!hasReason(error, 'NotFound')) throw error;
    }
  });
  return { changed: (kind, name) => queue.add(clusterPolicyKey(kind, name)) };
}
