import type { FactBody, FactPod } from '../agent/node-facts.ts';
import type { Client } from '../kube/client.ts';
import { ANNOUNCEMENT_LABEL } from '../kube/load-balancer.ts';
import { type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { EXTRA_SOURCES } from '../network/extra-sources.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { LocalFactRequest } from '../observe/fact-requests.ts';
import type { FactAnswer } from '../observe/facts.ts';
import { placeText } from '../observe/gather-facts.ts';
import { createExplainer, type FlowExplainer } from './explainer.ts';
import type { RemoteAgent, RemoteAgents } from './remote-agents.ts';

/** Less than agents accept: facts are sent too. */
const MAX_BYTES = 3 << 20;

/**
 * Explains flows of any cluster: agents have the forwarding tables and read their nodes; the pods, which agents may not
 * list, are read once, with the user's permissions. `namespaces`: of all pods that matter; null: any. Throws FairleadError if
 * no agent answers.
 */
export async function openRemoteExplainer(
  agents: readonly RemoteAgent[],
  remote: RemoteAgents,
  client: Client,
  namespaces: readonly string[] | null = null,
): Promise<FlowExplainer> {
  const agentOf = (node: string): RemoteAgent => {
    const agent = agents.find((one) => one.node === node);
    if (agent) return agent;
    throw new FairleadError(`no agent runs on node ${node}`, { op: 'explain', code: 'not-running' });
  };
  const all = await listObjects(client, namespaces);
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
  return createExplainer({
    nodes: () => agents.map(({ node }) => node),
    firstNode: () => first,
    ask: async (node, asked) => {
      const objects = { pods: neededPods(all.pods, all.services, asked), leases: all.leases };
      return (await remote.ask(agentOf(node), 'explain', { ...asked, hosts: [], objects })) as Explanation;
    },
    gather,
  });
}

async function listObjects(client: Client, namespaces: readonly string[] | null) {
  const places = namespaces === null ? [{}] : namespaces.map((namespace) => ({ namespace }));
  const [pods, services, leases] = await Promise.all([
    Promise.all(places.map((place) => client.list(RESOURCES.pods, place))),
    Promise.all(places.map((place) => client.list(RESOURCES.services, place))),
    client.list(RESOURCES.leases, { labelSelector: ANNOUNCEMENT_LABEL }),
  ]);
  return {
    pods: pods.flatMap(({ items }) => items),
    services: services.flatMap(({ items }) => items),
    leases: leases.items,
  };
}

/** Throws FairleadError if TO is the host outside of local clusters, whose address is not known. FROM may be: any client. */
export function refuseOutside({ to }: Pick<ExplainRequest, 'to'>): void {
  if (/^outside([:/]|$)/.test(to))
    throw new FairleadError('TO is outside, which has no known address in this cluster', {
      op: 'explain',
      code: 'bad-argument',
      hint: 'use the address of the server',
    });
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
 * Returns the pods that are sent with a question: all, as far as they fit into a request; of larger clusters those in
 * namespaces that the question names, in "default", in namespaces of Services whose addresses or node ports it names, and
 * those whose own addresses it names.
 */
export function neededPods(
  pods: readonly Pod[],
  services: readonly Service[],
  { from, to }: Pick<ExplainRequest, 'from' | 'to'>,
  limit = MAX_BYTES,
): Pod[] {
  const all = pods.map(trimPod);
  if (JSON.stringify(all).length <= limit) return all;
  const words = new Set(['default', ...`${from} ${to}`.toLowerCase().split(/[^a-z0-9-]+/)]);
  const isNamed = (address: string | undefined) =>
    address !== undefined && (from.includes(address) || to.includes(address));
  for (const { metadata, spec, status } of services) {
    const ports = (spec?.ports ?? []).map(({ nodePort }) => String(nodePort));
    const ingress = (status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip);
    const addresses = [...(spec?.clusterIPs ?? []), ...(spec?.externalIPs ?? []), ...ingress];
    if (addresses.some(isNamed) || ports.some((port) => words.has(port)))
      words.add(metadata?.namespace ?? '');
  }
  return all.filter(
    ({ metadata, status }) =>
      words.has(metadata?.namespace ?? '') || (status?.podIPs ?? []).some(({ ip }) => isNamed(ip)),
  );
}

/** Keeps the fields that `explain` reads. */
export function trimPod({ metadata, spec, status }: Pod): Pod {
  const { name, namespace, uid, labels, ownerReferences, deletionTimestamp } = metadata ?? {};
  const { nodeName, hostNetwork, containers = [] } = spec ?? {};
  const { phase, podIP, podIPs, conditions, containerStatuses } = status ?? {};
  const requested = metadata?.annotations?.[EXTRA_SOURCES];
  const annotations: NonNullable<Pod['metadata']>['annotations'] | undefined =
    requested === undefined ? undefined : { [EXTRA_SOURCES]: requested };
  return {
    metadata: { name, namespace, uid, labels, annotations, ownerReferences, deletionTimestamp },
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

function factBody(request: LocalFactRequest, pods: readonly Pod[]): FactBody {
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
