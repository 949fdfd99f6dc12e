import { join } from 'node:path';
import type { Client } from '../kube/client.ts';
import { extendedResources } from '../kube/extended-resources.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, type Node, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { PodNetwork } from '../network/pod-network.ts';
import { startKubelet } from '../runtime/kubelet.ts';
import type { KubeletOptions } from '../runtime/options.ts';
import type { Traffic } from '../runtime/traffic-end.ts';
import type { AgentContext } from './agent-context.ts';
import type { PodsConfiguration } from './configuration.ts';
import { servingOptions } from './identity/serving-certificate.ts';
import { fallbackNameServers } from './name-servers.ts';

/** Runs the pods of this node; resolves after the first sync of all of them. `own` has this machine's Node. */
export async function startPods(
  context: AgentContext,
  network: PodNetwork,
  nodes: Informer<Node>,
  own: Informer<Node>,
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
    extendedResources: ownExtendedResources(client, own, configuration.nodeName),
    network,
    clusterDns: pods.clusterDNS.length > 0 ? pods.clusterDNS : (dns?.addresses ?? []),
    // A getter, since the set of nodes changes.
    get fallbackDns() {
      return fallbackNameServers(dns?.addresses ?? [], configuration.nodeName, nodes.list());
    },
    clusterDomain: configuration.clusterDomain,
    apiService: await apiService(context, pods),
    builtinImages: context.builtinImages,
    images: {
      folder: pods.imagesDir ?? join(configuration.stateDir, 'images'),
      plainHttp: pods.plainHttpRegistries,
      limits: pods.imageLimits,
    },
    server: servingOptions(context, pods, own),
    ...(slices ? { trafficOf: (addresses) => trafficOf(slices.list(), addresses) } : {}),
    logger: logger.child({ part: 'pods' }),
    version: context.version,
    flags: context.flags,
    startedAt: context.startedAt,
    clock,
    random,
    signal,
  });
  context.onClose(() => kubelet.close());
  await kubelet.ready;
}

/** Returns the address of the API server for pods: as configured, else the cluster IP of its Service, as upstream's kubelet. */
async function apiService(
  { client, logger }: AgentContext,
  { apiServiceHost, apiServicePort }: PodsConfiguration,
): Promise<KubeletOptions['apiService']> {
  const configured = { host: apiServiceHost, port: apiServicePort };
  if (apiServiceHost !== '') return configured;
  try {
    const { spec } = await client.get(RESOURCES.services, 'kubernetes', 'default');
    const port = spec?.ports?.find(({ name }) => name === 'https')?.port ?? apiServicePort;
    return { host: spec?.clusterIP ?? '', port };
  } catch (error) {
    logger.warn(
      { part: 'pods' },
      `pods get no KUBERNETES_SERVICE_HOST; set pods.apiServiceHost: ${messageOf(error)}`,
    );
    return configured;
  }
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
