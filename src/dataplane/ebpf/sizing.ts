import type { ServiceMap } from '../../service/model.ts';
import { hasSameRun } from './allocation.ts';
import { maglevSize } from './maglev.ts';
import type { Capacity } from './maps.ts';
import { hasMembers, planOf } from './plan.ts';
import { SlotAllocator } from './slot-allocator.ts';

/** Leaves small clusters room to grow before maps are replaced; takes a few megabytes of kernel memory. */
const MIN_CAPACITY: Capacity = {
  frontends: 1 << 14,
  endpoints: 1 << 16,
  backends: 1 << 14,
  members: 1 << 14,
};

/**
 * Returns capacities for twice the size of a Service map, and one and a half times its endpoints, which
 * Services often share.
 */
export function capacityFor(map: ServiceMap): Capacity {
  let frontends = 0;
  let slots = 0;
  let backends = 0;
  let members = 0;
  for (const frontend of map.frontends.values()) {
    // Few other frontends are left to nf_tables.
    const plan = planOf(frontend, null);
    if (!plan) continue;
    frontends++;
    for (const route of hasSameRun(plan.pod, plan.node) ? [plan.pod] : [plan.pod, plan.node]) {
      const { length } = route.endpoints;
      if (length === 0) continue;
      const used = length + route.spared.length;
      backends += used;
      if (hasMembers(frontend)) members += used;
      slots += SlotAllocator.sizeOf(frontend.options.balance === 'maglev' ? maglevSize(length) : length);
    }
  }
  return {
    frontends: Math.max(MIN_CAPACITY.frontends, powerOf2(frontends * 2)),
    endpoints: Math.max(MIN_CAPACITY.endpoints, rounded(slots * 2)),
    backends: Math.max(MIN_CAPACITY.backends, rounded(backends * 1.5)),
    members: Math.max(MIN_CAPACITY.members, powerOf2(members * 2)),
  };
}

function powerOf2(min: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, min)));
}

function rounded(min: number): number {
  return Math.ceil(min / MIN_CAPACITY.backends) * MIN_CAPACITY.backends;
}
