import { join } from 'node:path';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { CNI_SOCKET, serveCni } from '../network/cni/cni-server.ts';
import { type CniInstallation, CONFLIST, installCni } from '../network/cni/installation.ts';
import { watchConfigurations } from '../network/cni/other-configurations.ts';
import { keepNetwork, reportRoutes } from '../network/network-keeper.ts';
import { NodeNetwork } from '../network/node-network.ts';
import { type PeerNode, peerNode } from '../network/peer-node.ts';
import { openPodNetwork, type PodNetwork } from '../network/pod-network.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';
import { registerPodAddresses } from './capacity-metrics.ts';
import { startConnectionBound } from './connection-bound-part.ts';
import { startDnsLimitEvents } from './dns-limit-events.ts';
import type { EgressPart } from './egress-part.ts';
import { startPodSources } from './pod-sources.ts';
import type { PolicyPart } from './policy-part.ts';

/**
 * Opens this node's pod network, reverts changes by other programs, and maintains the routes to all other nodes' pods.
 * `own` has this machine's Node. `policies`, `egress`: pods start when these are in force for them. `onProblem`: as in `keepNetwork`.
 */
export function startNetwork(
  context: AgentContext,
  node: Node,
  nodes: Informer<Node>,
  own: Informer<Node>,
  { policies, egress }: { readonly policies: PolicyPart | null; readonly egress: EgressPart | null },
  onProblem: (problem: string | null) => void,
): PodNetwork {
  const { configuration, logger, clock } = context;
  const overlay = configuration.network?.overlay ?? 'vxlan';
  const isRouted = overlay !== 'none';
  const network = new NodeNetwork({
    node: configuration.nodeName,
    addresses: configuration.pods?.nodeAddresses ?? addressesOf(node),
    podCidrs: node.spec?.podCIDRs ?? [],
    overlay: isRouted ? overlay : 'routes',
    masquerade: configuration.network?.masquerade ?? true,
    serviceCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
    // The namespace of a local cluster's node belongs to this program.
    ownsUplink: configuration.pods !== undefined && configuration.pods !== null,
    clock,
    logger: logger.child({ part: 'network' }),
  });
  reportOtherUplink(context, network.uplink);
  const opened = openPodNetwork({
    network,
    stateDir: configuration.stateDir,
    requiresGuard: policies !== null,
    clock,
    logger,
  });
  const guarded = policies ? policies.guard(opened) : opened;
  const pods = egress ? egress.open({ network, sync: () => sync() }, guarded) : guarded;
  const follow = () => {
    const current = own.get(configuration.nodeName);
    // Configured node addresses do not change while the agent runs.
    if (!current || configuration.pods || addressesOf(current).length === 0) return;
    try {
      network.moveTo(addressesOf(current));
    } catch (error) {
      logger.error(
        { err: error },
        `failed to move the pod network to the node's new addresses: ${messageOf(error)}`,
      );
    }
  };
  const peers = (): PeerNode[] =>
    (isRouted ? nodes.list() : [])
      .filter((one) => one.metadata?.name !== configuration.nodeName)
      .map(peerNode);
  let queued = false;
  const sync = () => {
    if (queued) return;
    queued = true;
    setImmediate(() => {
      queued = false;
      follow();
      reportRoutes(network.syncRoutes(peers()), logger);
    });
  };
  nodes.handle({ onAdd: sync, onUpdate: sync, onDelete: sync });
  const keeper = keepNetwork({ network, pods, peers, beforeCheck: follow, onProblem, clock, logger });
  context.onClose(() => {
    keeper.close();
    network.close();
  });
  const ownPods = startPodSources(context, opened);
  const podOf = (key: string) => ownPods?.get(key) ?? null;
  registerPodAddresses(context.registry, opened.usage);
  startConnectionBound(context, opened, network.netns, podOf);
  startDnsLimitEvents(context, (address) => podOf(opened.ownerOf(address)?.pod ?? ''));
  if (configuration.network?.cni) serveCniPlugin(context, configuration.network.cni, network, pods);
  return pods;
}

/** Warns if the configuration names another device than the one that is used. */
function reportOtherUplink({ configuration, logger, nodeEvent }: AgentContext, used: string): void {
  const message = otherUplink(configuration.network?.uplink ?? null, used);
  if (message === null) return;
  logger.warn({}, message);
  nodeEvent('Warning', 'UplinkNotUsed', message);
}

/** Describes a configured device that is not the one with the node's address, which is used; null: it is, or none is configured. */
export function otherUplink(configured: string | null, used: string): string | null {
  if (configured === null || configured === used) return null;
  return `network.uplink is ${configured}, but the node's address is on ${used}, which is used: remove the field, or give the Node an address of ${configured}`;
}

/** Serves container runtimes of this node, then installs the plugin's configuration. */
function serveCniPlugin(
  context: AgentContext,
  cni: Omit<CniInstallation, 'socket'>,
  network: NodeNetwork,
  pods: PodNetwork,
): void {
  const { configuration, logger, clock } = context;
  const socket = join(configuration.stateDir, CNI_SOCKET);
  const server = serveCni({ path: socket, network, pods, logger: logger.child({ part: 'cni' }) });
  context.onClose(() => server.close());
  installCni({ ...cni, socket });
  const { confDir } = cni;
  const stop = watchConfigurations(confDir, {
    clock,
    onChange(file) {
      const message =
        file === null
          ? `${CONFLIST} is the first network configuration in ${confDir} again: new pods are connected by Fairlead`
          : `${file} comes before ${CONFLIST} in ${confDir}: container runtimes use it, and new pods are not connected by Fairlead; remove or rename it`;
      if (file === null) logger.info({}, message);
      else logger.warn({}, message);
      const [type, reason] =
        file === null
          ? (['Normal', 'CNIConfigurationUsed'] as const)
          : (['Warning', 'OtherCNIConfiguration'] as const);
      context.nodeEvent(type, reason, message);
    },
  });
  context.onClose(stop);
}
