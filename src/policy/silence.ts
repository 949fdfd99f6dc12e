import { allows, isolating } from './allows.ts';
import type { PolicyMap, Protocol } from './model.ts';

export interface UnansweredConnection {
  /** Null: the agent of `node` itself. */
  readonly client: string | null;
  readonly endpoint: { readonly ip: string; readonly port: number };
  readonly protocol: Protocol;
  /** The node on which the connection was observed. */
  readonly node: string;
}

/**
 * Returns true if policies may be the reason for an unanswered connection, which is then ignored for the
 * endpoint's health: they deny it, or the endpoint is isolated and its node sees a node's address, which
 * rules rarely allow.
 */
export function mayBeDenied(
  map: PolicyMap,
  { client, endpoint, protocol, node }: UnansweredConnection,
): boolean {
  const pod = map.podAt(endpoint.ip);
  const isElsewhere = pod !== null && pod.node !== node;
  const isFromPod = client !== null && map.podAt(client) !== null;
  if (!isFromPod && isElsewhere && isolating(map, pod, 'ingress').length > 0) return true;
  if (client === null) return false;
  const packet = { source: client, destination: endpoint.ip, port: endpoint.port, protocol };
  return !allows(map, packet).isAllowed;
}
