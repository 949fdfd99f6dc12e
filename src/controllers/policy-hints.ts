import { EGRESS_NAMES, egressNamesProblems } from '../kube/egress-names.ts';
import { startInformer } from '../kube/informer.ts';
import { selects as matches } from '../kube/selector.ts';
import { keyOf, type Namespace, type NetworkPolicy, type Pod, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { coversNamespace } from '../policy/allows.ts';
import {
  type ClusterPolicyKind,
  type ClusterPolicyObject,
  clusterPolicyKey,
  readClusterPolicy,
} from '../policy/cluster-policy-reader.ts';
import { clusterPolicyResource, followClusterPolicies } from '../policy/follow-cluster-policies.ts';
import { startClusterPolicyStatus } from './cluster-policy-status.ts';
import { type ContextWith, controllerQueue, recorderFor } from './context.ts';
import { isFinished } from './pods.ts';

/** Policies are often created before their pods. */
const GRACE_MS = 30_000;

export interface PolicyHint {
  readonly reason: 'SelectsNoPods' | 'NoSuchPort' | 'UnsupportedField' | 'NameIgnored';
  readonly message: string;
}

type Port = { readonly port?: number | string; readonly protocol?: string };

/** Returns probable mistakes in a NetworkPolicy, given the pods of all namespaces. Pure. */
export function policyHints(policy: NetworkPolicy, pods: readonly Pod[]): PolicyHint[] {
  const running = pods.filter((pod) => !isFinished(pod));
  const selected = running.filter(
    ({ metadata }) =>
      metadata?.namespace === policy.metadata?.namespace &&
      matches(policy.spec?.podSelector ?? {}, metadata?.labels),
  );
  const concerned = selected.filter(({ spec }) => spec?.hostNetwork !== true);
  if (concerned.length === 0) {
    const message =
      selected.length === 0
        ? 'spec.podSelector selects no pod of the namespace: the policy has no effect'
        : `spec.podSelector selects only pods with hostNetwork (${selected.length}), to which network policies do not apply`;
    return [{ reason: 'SelectsNoPods', message }];
  }
  const ingress = (policy.spec?.ingress ?? []).flatMap(({ ports = [] }, i) =>
    unknownPorts(ports, `spec.ingress[${i}]`, concerned, 'none of the selected pods'),
  );
  const egress = (policy.spec?.egress ?? []).flatMap(({ ports = [] }, i) =>
    unknownPorts(ports, `spec.egress[${i}]`, running, 'no pod'),
  );
  const names = egressNamesProblems(policy).map(
    (problem): PolicyHint => ({
      reason: 'NameIgnored',
      message: `metadata.annotations[${EGRESS_NAMES}]: ${problem}`,
    }),
  );
  return [...ingress, ...egress, ...names];
}

function unknownPorts(
  ports: readonly Port[],
  field: string,
  receivers: readonly Pod[],
  receiver: string,
): PolicyHint[] {
  return ports.flatMap(({ port, protocol = 'TCP' }, i): PolicyHint[] => {
    if (typeof port !== 'string') return [];
    const isKnown = receivers.some(({ spec }) =>
      [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])].some((container) =>
        container.ports?.some((one) => one.name === port && (one.protocol ?? 'TCP') === protocol),
      ),
    );
    if (isKnown) return [];
    const message = `${field}.ports[${i}]: ${receiver} has a ${protocol} port named ${port}, so it allows nothing`;
    return [{ reason: 'NoSuchPort', message }];
  });
}

/** Returns probable mistakes in a policy of the whole cluster, and its fields that are not supported. Pure. */
export function clusterPolicyHints(
  kind: ClusterPolicyKind,
  object: ClusterPolicyObject,
  pods: readonly Pod[],
  namespaces: readonly Namespace[],
): PolicyHint[] {
  const { policy, unsupported } = readClusterPolicy(kind, object);
  const hints = unsupported.map(
    (field): PolicyHint => ({
      reason: 'UnsupportedField',
      message: `${field} is not supported: a rule that accepts matches nothing by it, and any other rule with it denies everything`,
    }),
  );
  const labels = new Map(namespaces.map(({ metadata }) => [metadata?.name ?? '', metadata?.labels ?? {}]));
  const selects = pods.some(
    (pod) =>
      pod.spec?.hostNetwork !== true &&
      !isFinished(pod) &&
      coversNamespace(
        policy.subject,
        pod.metadata?.namespace ?? '',
        labels.get(pod.metadata?.namespace ?? '') ?? null,
      ) &&
      matches(policy.subject.pods, pod.metadata?.labels),
  );
  if (selects) return hints;
  const message = 'spec.subject selects no pod: the policy has no effect';
  return [...hints, { reason: 'SelectsNoPods', message }];
}

/**
 * Writes an event on each policy that probably has a mistake, some time after it was created or changed, and the conditions
 * of the policies of the whole cluster.
 */
export function startPolicyHints(context: ContextWith<'pods' | 'namespaces'>): void {
  const informer = startInformer({ ...context, resource: RESOURCES.networkPolicies });
  const events = recorderFor(context, 'network-policy-controller');
  const queue = controllerQueue(context, 'network-policy-hints', async (key) => {
    const policy = informer.get(key);
    if (!policy) return;
    for (const { reason, message } of policyHints(policy, context.caches.pods.informer.list()))
      events.event(policy, 'Warning', reason, message, RESOURCES.networkPolicies);
  });
  informer.handle({
    onAdd: (policy) => queue.addAfter(keyOf(policy), GRACE_MS),
    onUpdate(policy, before) {
      if (policy.metadata?.generation !== before.metadata?.generation)
        queue.addAfter(keyOf(policy), GRACE_MS);
    },
    onDelete() {},
  });

  const clusterPolicies = new Map<
    string,
    { readonly kind: ClusterPolicyKind; readonly object: ClusterPolicyObject }
  >();
  const clusterQueue = controllerQueue(context, 'cluster-network-policy-hints', async (key) => {
    const found = clusterPolicies.get(key);
    if (!found) return;
    const { kind, object } = found;
    const { pods, namespaces } = context.caches;
    for (const { reason, message } of clusterPolicyHints(
      kind,
      object,
      pods.informer.list(),
      namespaces.informer.list(),
    ))
      events.event(object, 'Warning', reason, message, clusterPolicyResource(kind));
  });
  const status = startClusterPolicyStatus(context);
  followClusterPolicies(context, {
    onSet(kind, object) {
      const key = clusterPolicyKey(kind, keyOf(object));
      clusterPolicies.set(key, { kind, object });
      clusterQueue.addAfter(key, GRACE_MS);
      status.changed(kind, keyOf(object));
    },
    onDelete: (key) => void clusterPolicies.delete(key),
  }).catch((error: unknown) => {
    if (!context.signal.aborted)
      context.logger.warn({ err: error }, `failed to follow policies of the cluster: ${messageOf(error)}`);
  });
}
