import { type ProcessRecord, STABLE_MS } from '../../kernel/process-record.ts';

/** The state of the runtime's process. */
export interface RuntimeState {
  readonly record: ProcessRecord;
  /** Whether the present run is ready. */
  readonly isReady: boolean;
  /** Whether the problem before lasted. */
  readonly wasLasting: boolean;
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
/** After fewer short runs in a row, a run that is ready ends a lasting problem at once; after others, a long one does. */
const SOME_FAILURES = 3;

/** Returns the problems of the runtime. `now`: milliseconds since 1970. */
export function runtimeProblems(
  { record, isReady, wasLasting, silentMs, answerMs }: RuntimeState,
  now: number,
): RuntimeProblems {
  const why = record.lastExit ? `: ${record.lastExit.reason}` : '';
  const { failures, startedAt, identity } = record;
  const isLong = isReady && startedAt !== null && now - startedAt >= STABLE_MS;
  const isSilent = silentMs >= 2 * answerMs;
  const isOver = !isSilent && (isLong || (isReady && failures < SOME_FAILURES));
  const lasts = isSilent || (failures >= MANY_FAILURES && !isLong) || (wasLasting && !isOver);
  if (identity !== null && !lasts) return { now: null, lasting: null };
  const problem =
    failures >= SOME_FAILURES
      ? `the pod runtime has ended ${failures} times in a row${why}`
      : identity === null
        ? `the pod runtime is not running${why}`
        : `the pod runtime does not answer${why}`;
  return { now: problem, lasting: lasts ? problem : null };
}
