import type { Endpoint, Frontend, Route, ServiceMap } from '../../service/model.ts';
import { ACTION } from './layout.ts';

/** What the programs do for one class of source. */
export interface RoutePlan {
  readonly action: number;
  /** Empty unless forwarded. */
  readonly endpoints: readonly Endpoint[];
}

/** What the programs do for a frontend. */
export interface FrontendPlan {
  readonly pod: RoutePlan;
  readonly node: RoutePlan;
  /** Nothing is done for any class. */
  readonly isEmpty: boolean;
  /** Left to nf_tables because an endpoint is a frontend itself. */
  readonly collides: boolean;
}

const PASS: RoutePlan = { action: ACTION.pass, endpoints: [] };
const COLLIDING: RoutePlan = { ...PASS };
const REFUSE: RoutePlan = { action: ACTION.refuse, endpoints: [] };

/**
 * What is done for a frontend at the socket; null: nothing, nf_tables has it alone. That is so where the client's
 * source decides (source ranges), or the node's own addresses (node ports), where the source is to be rewritten, and
 * where the programs cannot see (SCTP). `isFrontend` tells whether an endpoint is a frontend itself; null: none is.
 */
export function planOf(
  frontend: Frontend,
  isFrontend: ((endpoint: Endpoint) => boolean) | null,
): FrontendPlan | null {
  if (frontend.address === null || frontend.allowedSources || frontend.protocol === 'SCTP') return null;
  const { pod: fromPod, node: fromNode } = frontend.routes;
  const collides = (route: Route) =>
    isFrontend !== null && route.action === 'forward' && route.pool.endpoints.some(isFrontend);
  const podCollides = collides(fromPod);
  const nodeCollides = samePool(fromPod, fromNode) ? podCollides : collides(fromNode);
  const pod = routePlan(fromPod, podCollides, false);
  const node = routePlan(fromNode, nodeCollides, true);
  const isEmpty = pod.action === ACTION.pass && node.action === ACTION.pass;
  return { pod, node, isEmpty, collides: pod === COLLIDING || node === COLLIDING };
}

const samePool = (a: Route, b: Route): boolean =>
  a.action === 'forward' && b.action === 'forward' && a.pool === b.pool;

function routePlan(route: Route, collides: boolean, isNode: boolean): RoutePlan {
  switch (route.action) {
    case 'drop':
      // No call of a program can be left without an answer the way a dropped packet is.
      return PASS;
    case 'reject':
      return REFUSE;
    case 'forward': {
      // The node's own sockets get an address of the node by routing, which is what masquerading would give them.
      if (route.masquerade && !isNode) return PASS;
      return collides ? COLLIDING : { action: ACTION.forward, endpoints: route.pool.endpoints };
    }
  }
}

/**
 * An endpoint whose own address and port are a frontend too: packets to it would be translated a second time, by
 * nf_tables, which does not happen to packets that nf_tables has translated.
 */
export function isFrontend(
  { ip, port }: Endpoint,
  { family, protocol }: Frontend,
  { frontends, node }: ServiceMap,
): boolean {
  return (
    frontends.has(`${family}/${ip}/${protocol}/${port}`) ||
    (ip === node[family] && frontends.has(`${family}/nodeport/${protocol}/${port}`))
  );
}

/** The address and port that would collide with a frontend if they were an endpoint's. */
export function collidingEndpoint(
  frontend: Frontend,
  map: ServiceMap,
): { readonly ip: string; readonly port: number } | null {
  const ip = frontend.address ?? map.node[frontend.family];
  return ip === null ? null : { ip, port: frontend.port };
}
