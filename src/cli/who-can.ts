import type { Client } from '../kube/client.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { parseTarget } from '../observe/explain-target.ts';
import { listClusterPolicies } from '../policy/follow-cluster-policies.ts';
import { type PolicyAction, type Protocol, policyText } from '../policy/model.ts';
import { readPod } from '../policy/pod-reader.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { type Reach, whoCan } from '../policy/who-can.ts';

/**
 * Answers `explain --who-can POD:PORT` from the objects of the cluster. Throws FairleadError for a target that is not a
 * pod with a port, and for a pod that no policy can isolate.
 */
export async function answerWhoCan(client: Client, text: string): Promise<Reach> {
  const { namespace, name, port, protocol } = readPodPort(text);
  const [pods, namespaces, policies, ofCluster] = await Promise.all([
    client.list(RESOURCES.pods),
    client.list(RESOURCES.namespaces),
    client.list(RESOURCES.networkPolicies),
    listClusterPolicies(client),
  ]);
  const known = pods.items.flatMap((one) => readPod(one) ?? []);
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
  const table = createPolicyTable('');
  for (const one of namespaces.items) table.setNamespace(one);
  for (const one of pods.items) table.setPod(one);
  for (const one of policies.items) table.setPolicy(one);
  for (const one of ofCluster) table.setClusterPolicy(one);
  return whoCan(table, known, { pod, port: number, protocol });
}

function readPodPort(text: string): {
  namespace: string;
  name: string;
  port: number | string;
  protocol: Protocol;
} {
  // "pod/NAME" has no namespace.
  const bare = /^pod\/([^/]+(?:\/(?:tcp|udp|sctp))?)$/i.exec(text)?.[1] ?? text;
  const { kind, namespace, name, port, protocol } = parseTarget(bare);
  if (kind !== 'pod' && kind !== 'dns') throw badTarget(text, 'is not a pod');
  if (port === null) throw badTarget(text, 'has no port');
  return { namespace: namespace || 'default', name, port, protocol: protocol ?? 'TCP' };
}

function badTarget(text: string, reason: string): FairleadError {
  return new FairleadError(`${JSON.stringify(text)}: ${reason}`, {
    op: 'explain',
    code: 'bad-argument',
    hint: 'use NAMESPACE/POD:PORT, or POD:PORT/udp',
  });
}

const VERBS: Readonly<Record<PolicyAction, string>> = {
  Accept: 'allow',
  Deny: 'deny',
  Pass: 'leave to the next tier',
};

/** Renders an answer as text. */
export function renderReach(reach: Reach): string {
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
