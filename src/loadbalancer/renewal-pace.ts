/** How long sessions of this node last, by how late its renewals have been. */
export interface RenewalPace {
  /** Records a renewal: the time from when it was due until its answer, or until it timed out. */
  record(ms: number): void;
  /** Returns how often the shortest duration is doubled: 0 while renewals are in time. */
  doublings(): number;
}

/** The part of a duration that a renewal may take before the session is extended. */
const IN_TIME = 7 / 30;
/** A node that is late asks the others for at most four times its usual duration. */
const MAX_DOUBLINGS = 2;
/** A late renewal counts half after this time. */
const HALF_LIFE_MS = 15_000;

/**
 * Creates a pace without renewals. A node stops acting two thirds of a duration after a renewal, and the next one is due
 * after a fifth: half of the time in between (7/30) is for a renewal that is late, and the other half is a reserve. A
 * node or an API server that has been slower than that is likely to be so again: without longer durations, its
 * addresses would move at each of its pauses. `shortestMs`: the duration while renewals are in time; `steady`:
 * milliseconds of a monotonic clock.
 */
export function createRenewalPace(shortestMs: number, steady: () => number): RenewalPace {
  const most = shortestMs * 2 ** MAX_DOUBLINGS * IN_TIME;
  let latest = { ms: 0, at: steady() };
  const now = () => latest.ms * 0.5 ** ((steady() - latest.at) / HALF_LIFE_MS);
  return {
    record(ms) {
      // A pause of minutes says no more about the next ones than a pause of the longest duration.
      latest = { ms: Math.max(now(), Math.min(ms, most)), at: steady() };
    },
    doublings() {
      const ms = now();
      let doublings = 0;
      while (doublings < MAX_DOUBLINGS && ms > shortestMs * 2 ** doublings * IN_TIME) doublings++;
      return doublings;
    },
  };
}
