import type { Pod } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { endOf } from './pods.ts';

const FIRST_MS = 1000;
const MAX_MS = 900_000;
/** Older failures are forgotten. */
const MEMORY_MS = 2 * MAX_MS;

/** The delay before failed pods of a place (a node of a DaemonSet, an ordinal of a StatefulSet) are replaced. */
export interface FailureBackoff {
  /** Returns the milliseconds until the failed pod may be replaced; 0: now. */
  left(place: string, pod: Pod): number;
  /** Records that a failed pod of the place was replaced. */
  replaced(place: string): void;
}

/** Doubles the delay with each failure of a place, from 1 s to 15 min (upstream's failedPodsBackoff). */
export function createFailureBackoff(clock: Pick<Clock, 'now'>): FailureBackoff {
  const failures = new Map<string, { count: number; at: number }>();
  const recent = (place: string) => {
    const known = failures.get(place);
    return known && clock.now() - known.at < MEMORY_MS ? known : { count: 0, at: 0 };
  };
  return {
    left(place, pod) {
      if (pod.status?.phase !== 'Failed') return 0;
      const { count } = recent(place);
      const pause = count === 0 ? 0 : Math.min(FIRST_MS * 2 ** (count - 1), MAX_MS);
      return Math.max(0, endOf(pod) + pause - clock.now());
    },
    replaced(place) {
      const { count } = recent(place);
      failures.delete(place);
      failures.set(place, { count: count + 1, at: clock.now() });
      const [oldest] = failures.keys();
      if (failures.size > 10_000 && oldest !== undefined) failures.delete(oldest);
    },
  };
}
