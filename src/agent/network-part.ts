import { dirname, join } from 'node:path';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { serveCni } from '../network/cni/cni-server.ts';
import { installCni } from '../network/cni/installation.ts';
import { NodeNetwork, type RouteFailure } from '../network/node-network.ts';
import { type PeerNode, peerNode } from '../network/peer-node.ts';
import { openPodNetwork, type PodNetwork } from '../network/pod-network.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';

/** How often routes are compared with the kernel's, in case others have changed them. */
const REPAIR_MS = 60_000;

/** Opens this node's pod network and keeps the routes to all other nodes' pods. */
export function startNetwork(context: AgentContext, node: Node, nodes: Informer<Node>): PodNetwork {
  const { configuration, logger, clock } = context;
  const network = new NodeNetwork({
    node: configuration.nodeName,
    addresses: configuration.pods?.nodeAddresses ?? addressesOf(node),
    podCidrs: node.spec?.podCIDRs ?? [],
    overlay: configuration.network?.overlay ?? 'vxlan',
    masquerade: configuration.network?.masquerade ?? true,
    serviceCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
  });
  const follow = () => {
    const own = nodes.get(configuration.nodeName);
    // Where this agent says what the node's addresses are, they do not change while it runs.
    if (!own || configuration.pods || addressesOf(own).length === 0) return;
    try {
      network.moveTo(addressesOf(own));
    } catch (error) {
      logger.error({ err: error }, `the pod network stays at the node's old addresses: ${messageOf(error)}`);
    }
  };
  const write = (failures: (peers: readonly PeerNode[]) => readonly RouteFailure[]) => {
    follow();
    const peers = nodes.list().filter((one) => one.metadata?.name !== configuration.nodeName);
    for (const failure of failures(peers.map(peerNode))) {
      logger.error(
        { node: failure.node, err: failure.error },
        `no route to ${failure.destination}: ${failure.error.message}`,
      );
    }
  };
  let queued = false;
  const sync = () => {
    if (queued) return;
    queued = true;
    setImmediate(() => {
      queued = false;
      write((peers) => network.syncRoutes(peers));
    });
  };
  nodes.handle({ onAdd: sync, onUpdate: sync, onDelete: sync });
  const repair = () => {
    write((peers) => network.repairRoutes(peers));
    cancelRepair = clock.after(REPAIR_MS, repair);
  };
  let cancelRepair = clock.after(REPAIR_MS, repair);
  context.onClose(() => {
    cancelRepair();
    network.close();
  });
  const pods = openPodNetwork({ network, stateDir: configuration.stateDir });
  if (configuration.network?.cni) serveCniPlugin(context, configuration.network.cni, network, pods);
  return pods;
}

/** Serves container runtimes of this node, and tells them so once it does. */
function serveCniPlugin(
  context: AgentContext,
  folders: { readonly binDir: string; readonly confDir: string },
  network: NodeNetwork,
  pods: PodNetwork,
): void {
  const { configuration, logger } = context;
  const socket = join(configuration.stateDir, 'cni.sock');
  const server = serveCni({ path: socket, network, pods, logger: logger.child({ part: 'cni' }) });
  context.onClose(() => server.close());
  installCni(
    { ...folders, libDir: join(configuration.stateDir, 'cni'), socket },
    { node: process.execPath, bundle: join(dirname(process.argv[1] ?? ''), 'cni.mjs') },
  );
}
