import type { IPFamily } from '../lib/address.ts';
import { hasLocalDetection } from './classify.ts';
import type { Frontend, NodeView, Pool, Route } from './model.ts';

/** The endpoint sets of a service port in one family; null: empty. */
export interface EndpointSets {
  /** Endpoints anywhere in the cluster. Empty means that the Service has no usable endpoint at all. */
  readonly cluster: Pool | null;
  readonly local: Pool | null;
}

/**
 * Returns the routes of packets to a cluster IP. Endpoints follow internalTrafficPolicy. Clients outside
 * the pod network are masqueraded, since replies to them could bypass this node; without local detection,
 * no client is masqueraded.
 */
export function internalRoutes(
  sets: EndpointSets,
  internalLocal: boolean,
  node: NodeView,
  family: IPFamily,
): Frontend['routes'] {
  const route = (masquerade: boolean) =>
    internalLocal ? toLocal(sets, masquerade) : toCluster(sets, masquerade);
  const outside = node.masqueradeAll || hasLocalDetection(node, family);
  return { pod: route(node.masqueradeAll), node: route(outside), external: route(outside) };
}

/**
 * Returns the routes of packets to a node port, load balancer address or external IP. With
 * externalTrafficPolicy Cluster all packets are masqueraded, since the reply must come back through this
 * node. With Local, clients outside keep their address and reach only this node's endpoints, while this
 * node and the cluster's pods reach all endpoints directly.
 */
export function externalRoutes(
  sets: EndpointSets,
  externalLocal: boolean,
  node: NodeView,
  family: IPFamily,
): Frontend['routes'] {
  if (!externalLocal) {
    const route = toCluster(sets, true);
    return { pod: route, node: route, external: route };
  }
  const external = toLocal(sets, false);
  const pod = hasLocalDetection(node, family) ? toCluster(sets, false) : external;
  return { pod, node: toCluster(sets, true), external };
}

function toCluster(sets: EndpointSets, masquerade: boolean): Route {
  if (!sets.cluster) return { action: 'reject', reason: 'no-endpoints' };
  return { action: 'forward', pool: sets.cluster, masquerade };
}

/**
 * Without any endpoint, a rejection informs the client; without a local one, dropping lets it try another
 * node.
 */
function toLocal(sets: EndpointSets, masquerade: boolean): Route {
  if (!sets.cluster) return { action: 'reject', reason: 'no-endpoints' };
  if (!sets.local) return { action: 'drop', reason: 'no-local-endpoints' };
  return { action: 'forward', pool: sets.local, masquerade };
}
