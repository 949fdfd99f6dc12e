import { type ProcessRecord, STABLE_MS } from '../../kernel/process-record.ts';

/** The state of the runtime's process. */
export interface RuntimeState {
  readonly record: ProcessRecord;
  /** Whether the present run is ready. */
  readonly isReady: boolean;
  /** How long no run has answered. */
  readonly silentMs: number;
  /** How long a run may be silent. */
  readonly answerMs: number;
}

/** Why a node cannot start and end pods; null: no reason is known. */
export interface RuntimeProblems {
  /** At present. */
  readonly now: string | null;
  /**
   * For long. A restart takes a second, and a node that is not ready takes its pods out of their Services: only such a problem
   * is a reason for that.
   */
  readonly lasting: string | null;
}

/** Short runs in a row after which the runtime does not work: with their pauses, about a minute. */
const MANY_FAILURES = 8;

/** Returns the problems of the runtime. `now`: milliseconds since 1970. */
export function runtimeProblems(
  { record, isReady, silentMs, answerMs }: RuntimeState,
  now: number,
): RuntimeProblems {
  const why = record.lastExit ? `: ${record.lastExit.reason}` : '';
  const isStable = isReady && record.startedAt !== null && now - record.startedAt >= STABLE_MS;
  if (record.failures >= MANY_FAILURES && !isStable) {
    const again = `the pod runtime has ended ${record.failures} times in a row${why}`;
    return { now: again, lasting: again };
  }
  const isLong = silentMs >= 2 * answerMs;
  if (record.identity !== null && !isLong) return { now: null, lasting: null };
  const state =
    record.identity === null
      ? `the pod runtime is not running${why}`
      : `the pod runtime does not answer${why}`;
  return { now: state, lasting: isLong ? state : null };
}
