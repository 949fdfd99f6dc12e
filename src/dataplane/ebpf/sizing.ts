import type { ServiceMap } from '../../service/model.ts';
import type { Capacity } from './layout.ts';
import { SlotRuns } from './slot-runs.ts';

/** Small clusters grow a lot before maps have to be made anew, at a few megabytes of kernel memory. */
const LEAST: Capacity = { frontends: 1 << 14, endpoints: 1 << 16, backends: 1 << 14 };
/** Slots of a Maglev table are not worth counting exactly. */
const MAGLEV_SLOTS = 1 << 10;

/** Room for a map and for it to grow to twice as much. */
export function capacityFor(map: ServiceMap): Capacity {
  let frontends = 0;
  let slots = 0;
  for (const { address, protocol, allowedSources, routes, options } of map.frontends.values()) {
    // What is left to nf_tables for other reasons hardly counts.
    if (address === null || allowedSources || protocol === 'SCTP') continue;
    frontends++;
    const { pod, node } = routes;
    const pools = [
      ...(pod.action === 'forward' && !pod.masquerade ? [pod.pool] : []),
      ...(node.action === 'forward' ? [node.pool] : []),
    ];
    for (const { endpoints } of new Set(pools)) {
      slots += options.balance === 'maglev' ? MAGLEV_SLOTS : SlotRuns.sizeOf(endpoints.length);
    }
  }
  return {
    frontends: Math.max(LEAST.frontends, powerOf2(frontends * 2)),
    endpoints: Math.max(LEAST.endpoints, powerOf2(slots * 2)),
    backends: Math.max(LEAST.backends, powerOf2(slots)),
  };
}

export function doubled({ frontends, endpoints, backends }: Capacity): Capacity {
  return { frontends: frontends * 2, endpoints: endpoints * 2, backends: backends * 2 };
}

function powerOf2(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}
