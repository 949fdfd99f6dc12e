import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Client } from '../kube/client.ts';
import { extendedResources } from '../kube/extended-resources.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, type Node, RESOURCES } from '../kube/types.ts';
import type { PodNetwork } from '../network/pod-network.ts';
import { startKubelet } from '../runtime/kubelet.ts';
import type { Traffic } from '../runtime/traffic-end.ts';
import type { AgentContext } from './agent-context.ts';
import { fallbackNameServers } from './name-servers.ts';

/** Runs the pods of this node; resolves after the first sync of all of them. */
export async function startPods(
  context: AgentContext,
  network: PodNetwork,
  nodes: Informer<Node>,
  slices: Informer<EndpointSlice> | null,
): Promise<void> {
  const { configuration, client, clock, random, logger, signal } = context;
  const { pods, dns } = configuration;
  if (!pods) return;
  const kubelet = await startKubelet({
    client,
    nodeName: configuration.nodeName,
    nodeAddresses: pods.nodeAddresses,
    stateDir: configuration.stateDir,
    cgroupParent: pods.cgroupParent,
    maxPods: pods.maxPods,
    extendedResources: ownExtendedResources(client, nodes, configuration.nodeName),
    network,
    clusterDns: dns?.addresses ?? [],
    // A getter, since the set of nodes changes.
    get fallbackDns() {
      return fallbackNameServers(dns?.addresses ?? [], configuration.nodeName, nodes.list());
    },
    clusterDomain: configuration.clusterDomain,
    apiService: { host: pods.apiServiceHost, port: pods.apiServicePort },
    builtinImages: context.builtinImages,
    images: {
      folder: pods.imagesDir ?? join(configuration.stateDir, 'images'),
      plainHttp: pods.plainHttpRegistries,
    },
    server: {
      port: pods.port,
      cert: readFileSync(pods.tls.cert, 'utf8'),
      key: readFileSync(pods.tls.key, 'utf8'),
      clientCa: readFileSync(pods.tls.clientCa, 'utf8'),
    },
    ...(slices ? { trafficOf: (addresses) => trafficOf(slices.list(), addresses) } : {}),
    logger: logger.child({ part: 'pods' }),
    clock,
    random,
    signal,
  });
  context.onClose(() => kubelet.close());
  await kubelet.ready;
}

/** Follows the extended resources of this node's object. */
export function ownExtendedResources(client: Client, nodes: Informer<Node>, name: string) {
  const of = (node: Node | undefined) => extendedResources(node?.status?.allocatable);
  return {
    current: () => of(nodes.get(name)),
    refresh: async () => nodes.record(await client.get(RESOURCES.nodes, name)),
    onChange(listener: () => void) {
      nodes.handle({
        onUpdate(node, before) {
          if (node.metadata?.name === name && JSON.stringify(of(node)) !== JSON.stringify(of(before)))
            listener();
        },
      });
    },
  };
}

/** Returns whether slices list one of the addresses, and as an endpoint for new connections. */
function trafficOf(slices: readonly EndpointSlice[], addresses: readonly string[]): Traffic {
  let found: Traffic = 'none';
  for (const { endpoints } of slices) {
    for (const { addresses: listed, conditions } of endpoints ?? []) {
      if (!listed.some((address) => addresses.includes(address))) continue;
      if (conditions?.ready !== false && conditions?.terminating !== true) return 'new';
      found = 'ending';
    }
  }
  return found;
}
