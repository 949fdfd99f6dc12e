import type { ServerId, VirtualServer } from '../../kernel/ipvs/codec.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import {
  type Endpoint,
  type Frontend,
  type Pool,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import type { NumberTable } from './marks.ts';
import { SCHEDULERS, type Scheduler } from './schedulers.ts';

/**
 * The alias address on the mode's interface, which no Service has, for redirected packets: the kernel does
 * not translate ports for persistent servers behind a mark, so these are behind ports of this address. RFC
 * 7600's dummy address, and one of RFC 6666's discard prefix: neither is ever used on a link.
 */
export const ALIAS: Readonly<Record<IPFamily, string>> = { ipv4: '192.0.0.8', ipv6: '100::8' };

/** A virtual server of a frontend, with its real servers. */
export interface PlannedServer {
  readonly server: VirtualServer;
  readonly endpoints: readonly Endpoint[];
  /** Endpoints that keep their flows, but get no new ones (`Pool.spared`). */
  readonly spared: readonly Endpoint[];
  readonly scheduler: Scheduler;
  /** The holder of its mark or alias (`NumberTable`); null for a server with the frontend's address. */
  readonly holder: string | null;
}

/** The action of the rules for the packets of a source class, before IPVS. */
export type SourceAction =
  /** IPVS selects the virtual server by the packet's address. */
  | { readonly action: 'pass' | 'masquerade' }
  /** IPVS selects it by this mark, which also tells whether the packet is masqueraded. */
  | { readonly action: 'steer'; readonly mark: number }
  /** IPVS selects it by this port of the alias address. */
  | { readonly action: 'redirect'; readonly port: number; readonly masquerade: boolean }
  | { readonly action: 'reject' | 'drop' };

/** The virtual servers of a frontend, and how packets reach them. */
export interface FrontendPlan {
  readonly frontend: Frontend;
  readonly servers: readonly PlannedServer[];
  readonly actions: Readonly<Record<SourceClass, SourceAction>>;
}

export interface PlanOptions {
  /**
   * Whether the frontend's address is on the mode's interface, so that virtual servers on it belong to the
   * mode.
   */
  readonly bound: boolean;
  readonly marks: NumberTable;
  /** Ports of the alias address. */
  readonly aliases: NumberTable;
  /** A name of `SCHEDULERS`. */
  readonly scheduler: string;
}

/**
 * Plans the virtual servers of a frontend. IPVS does not distinguish sources: the pool that most source
 * classes share is behind the frontend's address, others behind a mark. A node port has no address, and an
 * address of the node itself may have virtual servers of other programs: all servers of these frontends are
 * behind marks or, with affinity, alias ports.
 */
export function planFrontend(frontend: Frontend, options: PlanOptions): FrontendPlan {
  const { bound, marks, aliases } = options;
  const scheduler = SCHEDULERS[options.scheduler] ?? SCHEDULERS.rr;
  const servers = new Map<string, PlannedServer>();
  const shared = bound && frontend.address !== null ? sharedPool(frontend) : null;

  const add = (key: string, id: ServerId, pool: Pool, holder: string | null) => {
    if (servers.has(key) || !scheduler) return;
    servers.set(key, {
      server: {
        id,
        scheduler: options.scheduler,
        schedulerFlags: scheduler.flags,
        persistenceSeconds: frontend.affinitySeconds,
      },
      endpoints: pool.endpoints,
      spared: pool.spared ?? [],
      scheduler,
      holder,
    });
  };

  const { address: own, family } = frontend;
  const serverAt = (address: string, port: number): ServerId => {
    return { family, protocol: PROTOCOL_NUMBER[frontend.protocol], address, port };
  };

  const actionOf = (source: SourceClass): SourceAction => {
    const route = frontend.routes[source];
    if (route.action !== 'forward') return { action: route.action };
    const { pool, masquerade } = route;
    if (own !== null && pool.id === shared?.id) {
      add('', serverAt(own, frontend.port), pool, null);
      return { action: masquerade ? 'masquerade' : 'pass' };
    }
    const holder = holderOf(frontend, pool, masquerade);
    if (frontend.affinitySeconds !== null) {
      const port = aliases.take(holder, masquerade);
      add(holder, serverAt(ALIAS[family], port), pool, holder);
      return { action: 'redirect', port, masquerade };
    }
    const mark = marks.take(holder, masquerade);
    add(holder, { family, mark }, pool, holder);
    return { action: 'steer', mark };
  };

  const actions = { pod: actionOf('pod'), node: actionOf('node'), external: actionOf('external') };
  return { frontend, servers: [...servers.values()], actions };
}

/** Returns "KEY cluster", "KEY local masquerade": stable while the frontend exists. */
export function holderOf(frontend: Frontend, pool: Pool, masquerade: boolean): string {
  const scope = pool.id.slice(pool.id.lastIndexOf('/') + 1);
  return `${frontend.key} ${scope}${masquerade ? ' masquerade' : ''}`;
}

/** Returns the pool behind the frontend's address; the node's processes come first, since they have the largest pool. */
function sharedPool(frontend: Frontend): Pool | null {
  for (const source of ['node', ...SOURCE_CLASSES] as const) {
    const route = frontend.routes[source];
    if (route.action === 'forward') return route.pool;
  }
  return null;
}
