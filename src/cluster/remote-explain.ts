import { type ListedObjects, listObjectsToExplain } from '../agent/explain-part.ts';
import type { FactBody, FactPod } from '../agent/node-facts.ts';
import type { Client } from '../kube/client.ts';
import type { Pod } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { ExplainRequest, Explanation } from '../observe/explain-view.ts';
import type { FactAnswer, LocalFactRequest } from '../observe/facts.ts';
import { placeText } from '../observe/gather-facts.ts';
import { createExplainer } from './explainer.ts';
import type { RemoteAgent, RemoteAgents } from './remote-agents.ts';

/**
 * Explains a flow of any cluster: agents have the forwarding tables and read their nodes; the pods, which agents may not
 * list, are read with the user's permissions. Throws the errors of `explain`, and FairleadError if no agent answers.
 */
export async function explainRemotely(
  agents: readonly RemoteAgent[],
  remote: RemoteAgents,
  client: Client,
  request: ExplainRequest,
): Promise<Explanation> {
  for (const [label, text] of [
    ['FROM', request.from],
    ['TO', request.to],
  ] as const)
    if (/^outside(:|$)/.test(text))
      throw new FairleadError(`${label} is outside, which has no known address in this cluster`, {
        op: 'explain',
        code: 'bad-argument',
        hint: `use the address of the ${label === 'FROM' ? 'client' : 'server'}`,
      });
  const agentOf = (node: string): RemoteAgent => {
    const agent = agents.find((one) => one.node === node);
    if (agent) return agent;
    throw new FairleadError(`no agent runs on node ${node}`, { op: 'explain', code: 'not-running' });
  };
  const all = await listObjectsToExplain(client);
  const objects = { pods: neededPods(all.pods, request).map(trimPod), leases: all.leases };
  const first = await firstAnswering(agents, remote);
  const gather = async (fact: LocalFactRequest): Promise<FactAnswer> => {
    try {
      const body = factBody(fact, all.pods);
      const agent = agentOf(fact.place.kind === 'host' ? '' : fact.place.node);
      return (await remote.ask(agent, 'fact', body)) as FactAnswer;
    } catch (error) {
      const reason = `failed to read ${fact.kind} of ${placeText(fact.place)}: ${messageOf(error)}`;
      return { kind: 'failed', reason };
    }
  };
  const explainer = createExplainer({
    nodes: () => agents.map(({ node }) => node),
    firstNode: () => first,
    ask: async (node, asked) =>
      (await remote.ask(agentOf(node), 'explain', { ...asked, hosts: [], objects })) as Explanation,
    gather,
  });
  return await explainer.explain(request);
}

/** Returns the first node whose agent answers. Throws the error of the last one if none does. */
async function firstAnswering(agents: readonly RemoteAgent[], remote: RemoteAgents): Promise<string> {
  let problem: unknown;
  for (const agent of agents) {
    try {
      await remote.ask(agent, 'state');
      return agent.node;
    } catch (error) {
      problem = error;
    }
  }
  throw problem;
}

/**
 * Returns the pods that an explanation may look at, because a large cluster's are too many for a request: those in
 * namespaces that the question names, in "default", and with addresses that it names.
 */
export function neededPods(
  pods: ListedObjects['pods'],
  { from, to }: Pick<ExplainRequest, 'from' | 'to'>,
): Pod[] {
  const words = new Set(['default', ...`${from} ${to}`.toLowerCase().split(/[^a-z0-9-]+/)]);
  const isNamed = (address: string) => from.includes(address) || to.includes(address);
  return pods.filter(
    ({ metadata, status }) =>
      words.has(metadata?.namespace ?? '') ||
      (status?.podIPs ?? []).some(({ ip }) => ip !== undefined && isNamed(ip)),
  );
}

/** Keeps the fields that `explain` reads. */
export function trimPod({ metadata, spec, status }: Pod): Pod {
  const { name, namespace, uid, labels, ownerReferences, deletionTimestamp } = metadata ?? {};
  const { nodeName, hostNetwork, containers = [] } = spec ?? {};
  const { phase, podIP, podIPs, conditions, containerStatuses } = status ?? {};
  return {
    metadata: { name, namespace, uid, labels, ownerReferences, deletionTimestamp },
    spec: {
      nodeName,
      hostNetwork,
      containers: containers.map(({ name: container, ports, readinessProbe }) => ({
        name: container,
        ports,
        readinessProbe,
      })),
    },
    status: {
      phase,
      podIP,
      podIPs,
      conditions,
      containerStatuses: containerStatuses?.map(({ name: container, ready, state }) => ({
        name: container,
        ready,
        state,
      })),
    },
  } as Pod;
}

function factBody(request: LocalFactRequest, pods: ListedObjects['pods']): FactBody {
  const { place } = request;
  if (place.kind === 'node' || place.kind === 'host') return { request, pod: null };
  const pod = pods.find(({ metadata }) => metadata?.uid === place.uid);
  if (!pod) throw new FairleadError('it was deleted', { op: 'explain', code: 'not-found' });
  return { request, pod: factPod(pod, request.kind === 'names') };
}

/** Throws FairleadError if the name servers matter, and are the pod's own. */
function factPod({ spec, status }: Pod, isAboutNames: boolean): FactPod {
  const { dnsPolicy = 'ClusterFirst', dnsConfig, hostNetwork = false, hostAliases = [] } = spec ?? {};
  if (isAboutNames && (dnsPolicy === 'None' || (dnsConfig?.nameservers ?? []).length > 0))
    throw new FairleadError('it has name servers of its own (dnsConfig), which agents do not ask', {
      op: 'explain',
      code: 'unsupported',
    });
  const isClusters =
    dnsPolicy === 'ClusterFirstWithHostNet' || (dnsPolicy === 'ClusterFirst' && !hostNetwork);
  return {
    addresses: (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
    nameServers: isClusters ? 'cluster' : 'node',
    searches: dnsConfig?.searches ?? [],
    options: (dnsConfig?.options ?? []).flatMap(({ name, value }) =>
      name === undefined ? [] : value === undefined ? name : `${name}:${value}`,
    ),
    hosts: [
      '127.0.0.1 localhost',
      ...hostAliases.map(({ ip, hostnames = [] }) => `${ip} ${hostnames.join(' ')}`),
    ],
  };
}
