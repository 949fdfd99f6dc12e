import { hostPort } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Endpoint } from '../../service/model.ts';

export interface BalancerOptions {
  readonly clock: Clock;
  /** 0 to 1. If all nodes started with the first endpoint, it would get all their first connections. */
  readonly random: () => number;
}

/** The balancing options of a pool. */
export interface PoolSettings {
  readonly endpoints: readonly Endpoint[];
  /** Affinity timeout in seconds, since a client's last new connection; null: no affinity. */
  readonly affinitySeconds: number | null;
  /** Whether recently failed endpoints are tried last. */
  readonly failover: boolean;
}

/** Chooses the endpoints for a client's next connection: round robin, unless the client has affinity. */
export interface Balancer {
  configure(settings: PoolSettings): void;
  /** Yields every endpoint once, the best first. Lazily: only yielded endpoints count as used. */
  candidates(client: string): Generator<Endpoint, void>;
  /** Records the client's endpoint for session affinity. */
  bind(client: string, endpoint: Endpoint): void;
  /** Records that the endpoint has answered. Returns true if it had failed before. */
  answered(endpoint: Endpoint): boolean;
  /** Records that the endpoint refused or did not answer. */
  failed(endpoint: Endpoint): void;
}

/** Time after a failure during which an endpoint is tried only after the others. */
const SHUN_MS = 5000;
/** The maximum number of clients with affinity per pool; about 150 bytes each. */
const MAX_CLIENTS = 1 << 18;

export function createBalancer({ clock, random }: BalancerOptions): Balancer {
  let endpoints: readonly Endpoint[] = [];
  let byName = new Map<string, number>();
  let affinityMs: number | null = null;
  let failover = true;
  let turn = random();
  /** The time until which each failed endpoint is tried last. */
  const shunned = new Map<string, number>();
  /** In the order of their last connection, so that expired clients come first. */
  const clients = new Map<string, { readonly endpoint: string; readonly at: number }>();

  function isShunned(endpoint: Endpoint): boolean {
    if (shunned.size === 0) return false;
    const name = hostPort(endpoint);
    const until = shunned.get(name);
    if (until === undefined) return false;
    if (until > clock.now()) return true;
    shunned.delete(name);
    return false;
  }

  function boundTo(client: string): number | null {
    if (affinityMs === null) return null;
    const bound = clients.get(client);
    if (!bound || bound.at + affinityMs <= clock.now()) return null;
    return byName.get(bound.endpoint) ?? null;
  }

  function bind(client: string, endpoint: Endpoint): void {
    if (affinityMs === null) return;
    clients.delete(client);
    clients.set(client, { endpoint: hostPort(endpoint), at: clock.now() });
    const oldest = clock.now() - affinityMs;
    for (const [one, { at }] of clients) {
      if (at > oldest && clients.size <= MAX_CLIENTS) return;
      clients.delete(one);
    }
  }

  return {
    configure(settings) {
      const { affinitySeconds } = settings;
      failover = settings.failover;
      affinityMs = affinitySeconds === null ? null : affinitySeconds * 1000;
      if (affinityMs === null) clients.clear();
      if (endpoints === settings.endpoints) return;
      // The random start is drawn when the pool is not empty.
      if (endpoints.length === 0) turn = Math.floor(turn * settings.endpoints.length);
      endpoints = settings.endpoints;
      byName = new Map(endpoints.map((endpoint, i) => [hostPort(endpoint), i]));
      for (const name of shunned.keys()) if (!byName.has(name)) shunned.delete(name);
    },

    *candidates(client) {
      // The pool may change while a connection waits between two candidates.
      const all = endpoints;
      const bound = boundTo(client);
      const own = bound === null ? undefined : all[bound];
      if (own) yield own;
      const from = turn % Math.max(1, all.length);
      const late: Endpoint[] = [];
      for (let i = 0; i < all.length; i++) {
        const at = (from + i) % all.length;
        const endpoint = all[at];
        if (!endpoint || endpoint === own) continue;
        if (isShunned(endpoint)) {
          late.push(endpoint);
          continue;
        }
        turn = at + 1;
        // Recorded before the endpoint has answered, so that a concurrent second connection goes to the same one.
        if (boundTo(client) === null) bind(client, endpoint);
        yield endpoint;
      }
      for (const endpoint of late) {
        turn = all.indexOf(endpoint) + 1;
        yield endpoint;
      }
    },

    bind,

    answered(endpoint) {
      return shunned.size > 0 && shunned.delete(hostPort(endpoint));
    },

    failed(endpoint) {
      if (failover) shunned.set(hostPort(endpoint), clock.now() + SHUN_MS);
    },
  };
}
