import { patternsOf } from './host-pattern.ts';
import type { HostPattern } from './route-map.ts';

/** Hostnames that routes of one kind have at a listener. */
export interface HostClaims {
  add(pattern: HostPattern): void;
  /** Reports whether some name has this pattern and one that was added; in time that grows with its labels only. */
  intersects(pattern: HostPattern): boolean;
}

export function createHostClaims(): HostClaims {
  const own = new Set<HostPattern>();
  /** Every wildcard that contains a pattern that was added. */
  const containing = new Set<HostPattern>();
  return {
    add(pattern) {
      own.add(pattern);
      for (const wider of patternsOf(pattern)) containing.add(wider);
    },
    intersects: (pattern) =>
      own.has(pattern) || containing.has(pattern) || patternsOf(pattern).some((wider) => own.has(wider)),
  };
}
