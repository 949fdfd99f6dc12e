import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { deleteRoute, ROUTE_PROTOCOL, replaceRoute } from '../kernel/rtnetlink/routes.ts';
import type { Client } from '../kube/client.ts';
import { startInformer } from '../kube/informer.ts';
import { RESOURCES } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { podRoutes } from '../network/overlay-routes.ts';
import { peerNode } from '../network/peer-node.ts';
import { WIRE_BRIDGE } from '../network/topology.ts';

/**
 * Maintains routes from the control plane's namespace to the pods of each node, so that the API server reaches webhooks
 * and other servers in pods. The wire connects the control plane with all nodes, whichever overlay the nodes use.
 */
export function followPodRoutes(options: {
  readonly client: Client;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}): void {
  const { logger, signal } = options;
  const nodes = startInformer({ ...options, resource: RESOURCES.nodes });
  const written = new Map<string, string>();
  const update = () => {
    const self = { name: '', podCidrs: [], overlay: 'routes', tunnelFamily: 'ipv4' } as const;
    const wanted = podRoutes(self, nodes.list().map(peerNode));
    const stale = [...written.keys()].filter((destination) => !wanted.has(destination));
    const fresh = [...wanted.values()].filter(({ destination, via }) => written.get(destination) !== via);
    if (stale.length === 0 && fresh.length === 0) return;
    using socket = openRouteSocket();
    const device = getLink(socket, WIRE_BRIDGE).index;
    const attempt = (destination: string, change: () => void) => {
      try {
        change();
      } catch (error) {
        logger.warn({ destination }, `failed to write the route to the pods of a node: ${messageOf(error)}`);
      }
    };
    for (const destination of stale) {
      attempt(destination, () => {
        deleteRoute(socket, { destination, protocol: ROUTE_PROTOCOL.fairlead });
        written.delete(destination);
      });
    }
    for (const { destination, via } of fresh) {
      attempt(destination, () => {
        replaceRoute(socket, { destination, via, device, protocol: ROUTE_PROTOCOL.fairlead });
        written.set(destination, via);
      });
    }
  };
  nodes.handle({ onAdd: update, onUpdate: update, onDelete: update });
  nodes.synced.catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
}
