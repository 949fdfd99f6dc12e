import type { ServiceMap } from '../../service/model.ts';
import type { Capacity } from './layout.ts';
import { SlotRuns } from './slot-runs.ts';

/** Small clusters grow a lot before maps have to be made anew, at a few megabytes of kernel memory. */
const LEAST: Capacity = { frontends: 1 << 14, endpoints: 1 << 16, backends: 1 << 14, members: 1 << 14 };
/** Slots of a Maglev table are not worth counting exactly. */
const MAGLEV_SLOTS = 1 << 10;

/**
 * Room for a map and for it to grow to twice as much; for endpoints of their own, which many Services share, half as
 * much again.
 */
export function capacityFor(map: ServiceMap): Capacity {
  let frontends = 0;
  let slots = 0;
  let backends = 0;
  let members = 0;
  for (const frontend of map.frontends.values()) {
    const { address, protocol, allowedSources, routes, options, affinitySeconds } = frontend;
    // What is left to nf_tables for other reasons hardly counts.
    if (address === null || allowedSources || protocol === 'SCTP') continue;
    frontends++;
    const { pod, node } = routes;
    const podPool = pod.action === 'forward' && !pod.masquerade ? pod.pool : null;
    const nodePool = node.action === 'forward' ? node.pool : null;
    for (const pool of podPool === nodePool ? [podPool] : [podPool, nodePool]) {
      if (!pool) continue;
      const { length } = pool.endpoints;
      backends += length;
      if (affinitySeconds !== null) members += length;
      slots += options.balance === 'maglev' ? MAGLEV_SLOTS : SlotRuns.sizeOf(length);
    }
  }
  return {
    frontends: Math.max(LEAST.frontends, powerOf2(frontends * 2)),
    endpoints: Math.max(LEAST.endpoints, roomy(slots * 2)),
    backends: Math.max(LEAST.backends, roomy(backends * 1.5)),
    members: Math.max(LEAST.members, powerOf2(members * 2)),
  };
}

export function doubled({ frontends, endpoints, backends, members }: Capacity): Capacity {
  return { frontends: frontends * 2, endpoints: endpoints * 2, backends: backends * 2, members: members * 2 };
}

function powerOf2(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}

function roomy(least: number): number {
  return Math.ceil(least / LEAST.backends) * LEAST.backends;
}
