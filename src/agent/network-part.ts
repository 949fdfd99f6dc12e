import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { NodeNetwork } from '../network/node-network.ts';
import { peerNode } from '../network/peer-node.ts';
import { openPodNetwork, type PodNetwork } from '../network/pod-network.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';

/** Opens this node's pod network and keeps the routes to all other nodes' pods. */
export function startNetwork(context: AgentContext, node: Node, nodes: Informer<Node>): PodNetwork {
  const { configuration, logger } = context;
  const network = new NodeNetwork({
    node: configuration.nodeName,
    addresses: configuration.pods?.nodeAddresses ?? addressesOf(node),
    podCidrs: node.spec?.podCIDRs ?? [],
    overlay: configuration.network?.overlay ?? 'vxlan',
    serviceCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
  });
  let queued = false;
  const sync = () => {
    if (queued) return;
    queued = true;
    setImmediate(() => {
      queued = false;
      const peers = nodes.list().filter((one) => one.metadata?.name !== configuration.nodeName);
      for (const failure of network.syncRoutes(peers.map(peerNode))) {
        logger.error(
          { node: failure.node, err: failure.error },
          `no route to ${failure.destination}: ${failure.error.message}`,
        );
      }
    });
  };
  nodes.handle({ onAdd: sync, onUpdate: sync, onDelete: sync });
  context.onClose(() => network.close());
  return openPodNetwork({ network, stateDir: configuration.stateDir });
}
