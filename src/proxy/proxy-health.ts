import type { IPFamily } from '../lib/address.ts';
import type { ProxyHealth } from './status-servers.ts';

/** Times in milliseconds of the clock. */
export interface HealthFacts {
  readonly now: number;
  readonly startedAt: number;
  /** The time of the last successful programming; null: none. */
  readonly lastAppliedAt: number | null;
  /** The time since which a change has been waiting; null: none waits. */
  readonly pendingSince: number | null;
  /** Why the last programming failed; null: it did not. */
  readonly failure: string | null;
  readonly syncPeriodMs: number;
  readonly families: readonly IPFamily[];
  /** The fault of the Node object; null: none. */
  readonly nodeProblem: string | null;
}

/** Returns the health of the proxy. Before the first programming it is not healthy, so that a roll-out waits for it. */
export function proxyHealth(facts: HealthFacts): ProxyHealth {
  const { now, startedAt, lastAppliedAt, pendingSince, syncPeriodMs, families, failure, nodeProblem } = facts;
  const isLate = pendingSince !== null && now - pendingSince >= 2 * syncPeriodMs;
  const problems = [
    lastAppliedAt === null ? 'Services have not been programmed yet' : null,
    failure === null ? null : `programming failed: ${failure}`,
    nodeProblem,
  ].filter((one) => one !== null);
  return {
    healthy: !isLate && lastAppliedAt !== null && nodeProblem === null,
    live: !isLate,
    lastUpdated: lastAppliedAt ?? startedAt,
    families,
    problem: problems.length > 0 ? problems.join('; ') : null,
  };
}
