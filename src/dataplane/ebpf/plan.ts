import type { Endpoint, Frontend, Route, ServiceMap } from '../../service/model.ts';
import { mayForwardAtSocket } from '../mode-differences.ts';
import { ACTION } from './generated/layout.ts';

/** The table of the rules for traffic that the programs do not see. */
export const FALLBACK_TABLE = 'fairlead-fallback';

/** The action of the programs for one source class. */
export interface RoutePlan {
  readonly action: number;
  /** Empty unless forwarded. */
  readonly endpoints: readonly Endpoint[];
  /** Endpoints that only flows that already use them may use (`Pool.spared`). */
  readonly spared: readonly Endpoint[];
}

/** The actions of the programs for a frontend. */
export interface FrontendPlan {
  readonly pod: RoutePlan;
  readonly node: RoutePlan;
  /** Whether the programs have no action for any class. */
  readonly isEmpty: boolean;
  /** Whether it is left to nf_tables because an endpoint is a frontend itself. */
  readonly collides: boolean;
}

const NONE: readonly Endpoint[] = [];
const PASS: RoutePlan = { action: ACTION.PASS, endpoints: NONE, spared: NONE };
const COLLIDING: RoutePlan = { ...PASS };
const REFUSE: RoutePlan = { action: ACTION.REFUSE, endpoints: NONE, spared: NONE };

/**
 * Plans the actions of the programs for a frontend; null: it is left to nf_tables. These are frontends with
 * source ranges, node ports (which answer on the node's addresses), masqueraded ones, and SCTP, which the
 * hooks do not see. `isFrontend`: returns true if an endpoint is itself a frontend; null: no endpoint is.
 */
export function planOf(
  frontend: Frontend,
  isFrontend: ((endpoint: Endpoint) => boolean) | null,
): FrontendPlan | null {
  if (!mayForwardAtSocket(frontend)) return null;
  const { pod: fromPod, node: fromNode } = frontend.routes;
  const collides = (route: Route) =>
    isFrontend !== null &&
    route.action === 'forward' &&
    (route.pool.endpoints.some(isFrontend) || (route.pool.spared ?? NONE).some(isFrontend));
  const podCollides = collides(fromPod);
  const nodeCollides = samePool(fromPod, fromNode) ? podCollides : collides(fromNode);
  const pod = routePlan(fromPod, podCollides, false);
  const node = routePlan(fromNode, nodeCollides, true);
  const isEmpty = pod.action === ACTION.PASS && node.action === ACTION.PASS;
  return { pod, node, isEmpty, collides: pod === COLLIDING || node === COLLIDING };
}

const samePool = (a: Route, b: Route): boolean =>
  a.action === 'forward' && b.action === 'forward' && a.pool === b.pool;

function routePlan(route: Route, collides: boolean, isNode: boolean): RoutePlan {
  switch (route.action) {
    case 'drop':
      // A program can reject a call, but it cannot delay it the way a dropped packet does.
      return PASS;
    case 'reject':
      return REFUSE;
    case 'forward': {
      // Routing already gives the node's sockets a node address, as masquerading would.
      if (route.masquerade && !isNode) return PASS;
      if (collides) return COLLIDING;
      return {
        action: ACTION.FORWARD,
        endpoints: route.pool.endpoints,
        spared: route.pool.spared ?? NONE,
      };
    }
  }
}

/**
 * Returns true if the programs look up whether an earlier endpoint of a client (affinity) or of an unconnected socket
 * (UDP) still serves, so that the map `members` has the endpoints of this frontend.
 */
export const hasMembers = ({ affinitySeconds, protocol }: Frontend): boolean =>
  affinitySeconds !== null || protocol === 'UDP';

/**
 * Returns true if the address and port of an endpoint are also a frontend. nf_tables would translate
 * packets to it again, which does not happen to packets that nf_tables itself has translated.
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

/**
 * Returns the address and port at which an endpoint would be this frontend; null if the frontend has no
 * address.
 */
export function collidingEndpoint(
  frontend: Frontend,
  map: ServiceMap,
): { readonly ip: string; readonly port: number } | null {
  const ip = frontend.address ?? map.node[frontend.family];
  return ip === null ? null : { ip, port: frontend.port };
}
