import type { ProcessIdentity } from './process-identity.ts';

/** A supervisor's record of one process. Times are milliseconds since 1970. */
export interface ProcessRecord {
  /** Null: not started, or ended. */
  readonly identity: ProcessIdentity | null;
  readonly startedAt: number | null;
  readonly restarts: number;
  /** Consecutive exits after short runs, which lengthen the delay before the next start. */
  readonly failures: number;
  readonly lastExit: { readonly at: number; readonly reason: string } | null;
  /** The time of the next start; null while it runs. */
  readonly startAt: number | null;
}

export const NEW_RECORD: ProcessRecord = {
  identity: null,
  startedAt: null,
  restarts: 0,
  failures: 0,
  lastExit: null,
  startAt: 0,
};

const MIN_PAUSE_MS = 200;
export const MAX_PAUSE_MS = 30_000;
/** A run of this length resets the count of failures. */
export const STABLE_MS = 60_000;

/** Returns the record of an exited process, with the time of its next start. */
export function ended(record: ProcessRecord, reason: string, now: number): ProcessRecord {
  const ran = record.startedAt === null ? 0 : now - record.startedAt;
  const failures = ran >= STABLE_MS ? 1 : record.failures + 1;
  const pauseMs = Math.min(MIN_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
  return { ...record, identity: null, failures, lastExit: { at: now, reason }, startAt: now + pauseMs };
}

/** Returns the record of a started process. */
export function started(record: ProcessRecord, identity: ProcessIdentity, now: number): ProcessRecord {
  const restarts = record.startedAt === null ? record.restarts : record.restarts + 1;
  return { ...record, identity, startedAt: now, restarts, startAt: null };
}
