import type { Client } from '../kube/client.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, type Node, RESOURCES } from '../kube/types.ts';
import type { PodNetwork } from '../network/pod-network.ts';
import { parseBindAddress } from '../proxy/status-servers.ts';
import type { AgentContext } from './agent-context.ts';
import { askProgrammed } from './ask-programmed.ts';
import { createEndpointTraffic } from './endpoint-traffic.ts';
import { servingOptions } from './identity/serving-certificate.ts';
import { fallbackNameServers } from './name-servers.ts';
import { type RuntimeProcess, runtimeConfiguration } from './pod-runtime/runtime-process.ts';
import type { RuntimeNeeds } from './pod-runtime/serve-runtime.ts';
import { type AskedNode, askedNodes, createProgrammedNodes } from './programmed-nodes.ts';

/** Lets the pod runtime connect to the API server, once the node's credentials exist. */
export function configureRuntime(runtime: RuntimeProcess, { configuration, flags }: AgentContext): void {
  const { pods, dns } = configuration;
  if (!pods) return;
  const clusterDns = pods.clusterDNS.length > 0 ? pods.clusterDNS : (dns?.addresses ?? []);
  runtime.configure({ configuration: runtimeConfiguration({ ...configuration, pods }, clusterDns), flags });
}

export interface PodsPartOptions {
  readonly network: PodNetwork;
  readonly nodes: Informer<Node>;
  /** Has this machine's Node. */
  readonly own: Informer<Node>;
  readonly slices: Informer<EndpointSlice> | null;
  /** Returns the version of the slices by which this node forwards; null: none. */
  readonly programmedSlices: () => string | null;
  /** Returns the addresses of the API servers that the agent has learned. */
  readonly apiServers: () => readonly string[];
}

/** Lets the pod runtime run the pods of this node; resolves after its first sync of all of them. */
export async function startPods(
  context: AgentContext,
  runtime: RuntimeProcess,
  { network, nodes, own, slices, programmedSlices, apiServers }: PodsPartOptions,
): Promise<void> {
  const { configuration } = context;
  const { pods, dns, nodeName } = configuration;
  if (!pods) return;
  await runtime.serve({
    network,
    // Attachments by container runtimes have a slash in their identifiers.
    attached: () => network.uids().filter((uid) => !uid.includes('/')),
    surroundings: () => ({
      nameServers: fallbackNameServers(dns?.addresses ?? [], nodeName, nodes.list()),
      apiServers: apiServers(),
    }),
    allocatable: ownAllocatable(context.client, own, nodeName),
    serving: servingOptions(context, pods, own),
    ...(slices ? { trafficOf: trafficFrom(context, slices, nodes, programmedSlices) } : {}),
  });
}

function trafficFrom(
  { configuration, clock }: AgentContext,
  slices: Informer<EndpointSlice>,
  nodes: Informer<Node>,
  own: () => string | null,
): NonNullable<RuntimeNeeds['trafficOf']> {
  const { nodeName, healthzBindAddress } = configuration;
  const port =
    healthzBindAddress === null ? null : parseBindAddress('healthzBindAddress', healthzBindAddress).port;
  const others = (): AskedNode[] => (port === null ? [] : askedNodes(nodes.list(), nodeName));
  const ask = (address: string) => askProgrammed(address, port ?? 0);
  const programmed = createProgrammedNodes({ own, others, ask, clock });
  // Which nodes answer is learned before it matters: a busy one may be late then.
  const meet = () => void programmed.have('');
  nodes.handle({ onAdd: meet, onUpdate: meet });
  return createEndpointTraffic({ slices, nodes: programmed, clock });
}

/** Follows the allocatable resources of this node's object. */
export function ownAllocatable(
  client: Client,
  nodes: Informer<Node>,
  nodeName: string,
): RuntimeNeeds['allocatable'] {
  const of = (node: Node | undefined) => node?.status?.allocatable ?? {};
  return {
    current: () => of(nodes.get(nodeName)),
    refresh: async () => nodes.record(await client.get(RESOURCES.nodes, nodeName)),
    onChange(listener) {
      nodes.handle({
        onUpdate(node, before) {
          if (node.metadata?.name === nodeName && JSON.stringify(of(node)) !== JSON.stringify(of(before)))
            listener();
        },
      });
    },
  };
}
