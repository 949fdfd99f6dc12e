import type { Client } from '../kube/client.ts';
import { type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { parseTarget } from '../observe/explain-target.ts';
import { listClusterPolicies } from '../policy/follow-cluster-policies.ts';
import { type PolicyAction, type PolicyPod, type Protocol, policyText } from '../policy/model.ts';
import { readPod } from '../policy/pod-reader.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { type Reach, whoCan } from '../policy/who-can.ts';

/**
 * Answers `explain --who-can POD:PORT` or `svc/NAME[:PORT]` from the objects of the cluster: one answer for the pod, or for
 * each pod that the Service selects. Throws FairleadError for a target that is neither, and for a pod that no policy can
 * isolate.
 */
export async function answerWhoCan(client: Client, text: string): Promise<Reach | Reach[]> {
  const { isService, namespace, name, port, protocol } = readPodPort(text);
  const [pods, namespaces, policies, ofCluster] = await Promise.all([
    client.list(RESOURCES.pods),
    client.list(RESOURCES.namespaces),
    client.list(RESOURCES.networkPolicies),
    listClusterPolicies(client),
  ]);
  const table = createPolicyTable('');
  for (const one of namespaces.items) table.setNamespace(one);
  for (const one of pods.items) table.setPod(one);
  for (const one of policies.items) table.setPolicy(one);
  for (const one of ofCluster) table.setClusterPolicy(one);
  const known = pods.items.flatMap((one) => readPod(one) ?? []);
  if (isService) {
    const service = await client.get(RESOURCES.services, name, namespace);
    const backends = backendsOf(service, pods.items, { text, port, protocol });
    return backends.map((to) => whoCan(table, known, to));
  }
  const inNamespace = known.filter((one) => one.namespace === namespace);
  const pod =
    inNamespace.find(({ key }) => key === `${namespace}/${name}`) ??
    inNamespace.find(({ key }) => key.startsWith(`${namespace}/${name}-`));
  if (!pod) {
    throw new FairleadError(`no pod ${namespace}/${name} has its own address`, {
      op: 'explain',
      code: 'not-found',
      hint: 'network policies do not apply to pods with hostNetwork, and to pods that have ended',
    });
  }
  const number = typeof port === 'number' ? port : pod.ports.find((one) => one.name === port)?.port;
  if (number === undefined) throw badTarget(text, `pod ${pod.key} has no port named ${port}`);
  return whoCan(table, known, { pod, port: number, protocol });
}

/**
 * Returns the pods that a Service selects, with the port to which it leads there. Pods without the named target port are
 * not endpoints. Throws FairleadError if there are none.
 */
export function backendsOf(
  service: Service,
  pods: readonly Pod[],
  { text, port, protocol }: { text: string; port: number | string | null; protocol: Protocol },
): { pod: PolicyPod; port: number; protocol: Protocol }[] {
  const { selector = {}, ports = [] } = service.spec ?? {};
  const labels = Object.entries(selector);
  if (labels.length === 0)
    throw badTarget(text, 'the Service has no selector: ask about a pod behind it, POD:PORT');
  const ofProtocol = ports.filter((one) => (one.protocol ?? 'TCP') === protocol);
  const found =
    port === null
      ? ofProtocol.length === 1
        ? ofProtocol[0]
        : undefined
      : ofProtocol.find((one) => one.port === port || one.name === port);
  if (!found) {
    const names = ports.map((one) => `${one.port}/${one.protocol ?? 'TCP'}`).join(', ') || 'none';
    throw badTarget(text, `name one of the Service's ports: ${names}`);
  }
  const target = found.targetPort ?? found.port;
  const backends = pods
    .filter(
      ({ metadata }) =>
        metadata?.namespace === service.metadata?.namespace &&
        labels.every(([key, value]) => metadata?.labels?.[key] === value),
    )
    .flatMap((one) => readPod(one) ?? [])
    .flatMap((pod) => {
      const named = pod.ports.find((one) => one.name === target && one.protocol === protocol);
      const number = typeof target === 'number' ? target : named?.port;
      return number === undefined ? [] : [{ pod, port: number, protocol }];
    });
  if (backends.length > 0) return backends;
  throw new FairleadError(`no pod behind ${JSON.stringify(text)} has its own address`, {
    op: 'explain',
    code: 'not-found',
    hint: 'network policies do not apply to pods with hostNetwork, and to pods that have ended',
  });
}

function readPodPort(
  text: string,
):
  | { isService: false; namespace: string; name: string; port: number | string; protocol: Protocol }
  | { isService: true; namespace: string; name: string; port: number | string | null; protocol: Protocol } {
  // "pod/NAME" has no namespace.
  const bare = /^pod\/([^/]+(?:\/(?:tcp|udp|sctp))?)$/i.exec(text)?.[1] ?? text;
  const { kind, namespace, name, port, protocol } = parseTarget(bare);
  const common = { namespace: namespace || 'default', name, protocol: protocol ?? 'TCP' };
  if (kind === 'service') return { isService: true, ...common, port };
  if (kind !== 'pod' && kind !== 'dns') throw badTarget(text, 'is neither a pod nor a Service');
  if (port === null) throw badTarget(text, 'has no port');
  return { isService: false, ...common, port };
}

function badTarget(text: string, reason: string): FairleadError {
  return new FairleadError(`${JSON.stringify(text)}: ${reason}`, {
    op: 'explain',
    code: 'bad-argument',
    hint: 'use NAMESPACE/POD:PORT, POD:PORT/udp, or svc/NAME:PORT',
  });
}

const VERBS: Readonly<Record<PolicyAction, string>> = {
  Accept: 'allow',
  Deny: 'deny',
  Pass: 'leave to the next tier',
};

/** Renders an answer as text; for a Service that of each pod behind it. */
export const renderReaches = (answer: Reach | readonly Reach[]): string =>
  [answer].flat().map(renderReach).join('\n');

function renderReach(reach: Reach): string {
  const { pod, port, protocol, isolatedBy, admissions, allowed, deniedBySender } = reach;
  const lines: string[] = [];
  if (isolatedBy.length === 0) {
    lines.push(`${pod}: no policy applies to it for ingress; any address may reach ${port}/${protocol}`);
  } else {
    lines.push(`${pod}: subject to ${isolatedBy.map(policyText).join(', ')} for ingress`);
    lines.push(`rules for ${port}/${protocol}, in the order of evaluation:`);
    if (admissions.length === 0) lines.push('  none');
    for (const { policy, action, field, peer, pods } of admissions) {
      const now = pods === null ? '' : `: ${pods.length > 0 ? pods.join(', ') : 'no pod at this moment'}`;
      lines.push(`  ${VERBS[action]} ${peer} (${policyText(policy)}, ${field})${now}`);
    }
  }
  lines.push('always allowed: the pod itself, and processes of its node');
  lines.push(`pods that may reach it: ${allowed.length > 0 ? allowed.join(', ') : 'none'}`);
  for (const { pod: sender, policies } of deniedBySender)
    lines.push(`not ${sender}: ${policies.map(policyText).join(', ')} denies its egress`);
  return `${lines.join('\n')}\n`;
}
