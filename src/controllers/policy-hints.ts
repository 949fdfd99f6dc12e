import { startInformer } from '../kube/informer.ts';
import { selects } from '../kube/selector.ts';
import { keyOf, type NetworkPolicy, type Pod, RESOURCES } from '../kube/types.ts';
import { type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import { isFinished } from './pods.ts';

/** Policies are often created before their pods. */
const GRACE_MS = 30_000;

export interface PolicyHint {
  readonly reason: 'SelectsNoPods' | 'NoSuchPort';
  readonly message: string;
}

type Port = { readonly port?: number | string; readonly protocol?: string };

/** Returns probable mistakes in a NetworkPolicy, given the pods of all namespaces. Pure. */
export function policyHints(policy: NetworkPolicy, pods: readonly Pod[]): PolicyHint[] {
  const running = pods.filter((pod) => !isFinished(pod));
  const selected = running.filter(
    ({ metadata }) =>
      metadata?.namespace === policy.metadata?.namespace &&
      selects(policy.spec?.podSelector ?? {}, metadata?.labels),
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
  return [...ingress, ...egress];
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

/** Writes an event on each NetworkPolicy that probably has a mistake, some time after it was created or changed. */
export function startPolicyHints(context: ControllerContext): void {
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
}
