import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { ProcessIdentity } from './process-identity.ts';
import { ended, NEW_RECORD, type ProcessRecord, started } from './process-record.ts';

/** A process that was started. */
export interface StartedProcess {
  readonly identity: ProcessIdentity;
  /** Calls back with the reason when the process ends. */
  onExit(call: (reason: string) => void): void;
}

export interface SupervisorOptions {
  /** Returns the names of the processes that should be running now. */
  readonly wanted: () => readonly string[];
  /** Reports whether what a process needs is there; it is not started before. Default: always. */
  readonly mayStart?: (name: string) => boolean;
  /** Starts a process. Throws on failure. */
  readonly start: (name: string) => StartedProcess;
  /** Reports whether a process of an earlier supervisor is still running. */
  readonly isRunning: (identity: ProcessIdentity) => boolean;
  /** The records of an earlier supervisor, whose processes are adopted. */
  readonly records: Readonly<Record<string, ProcessRecord>>;
  /** Called after each change of the records. */
  readonly save: (records: Readonly<Record<string, ProcessRecord>>) => void;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Restarts processes when they exit. */
export interface Supervisor {
  /** Detects exits and starts due processes. Called periodically, and after each change of the wanted processes. */
  reconcile(): void;
  /** Starts waiting processes immediately. */
  hurry(): void;
  /** Stops supervising; the processes keep running. */
  close(): void;
}

export const POLL_MS = 250;

/** Starts supervising the processes. */
export function createSupervisor(options: SupervisorOptions): Supervisor {
  const { clock, logger } = options;
  const records = new Map(Object.entries(options.records));
  /** The exit reasons of our own processes; absent: running. */
  const exits = new Map<string, string | null>();
  let isClosed = false;
  let cancel = () => {};
  let saved = '';

  const endOf = (name: string, identity: ProcessIdentity): string | null => {
    const own = exits.get(keyOf(identity));
    if (own !== undefined) return own;
    return options.isRunning(identity) ? null : `ended for an unknown reason: see ${name}.log`;
  };
  const start = (name: string, record: ProcessRecord) => {
    const now = clock.now();
    try {
      const process = options.start(name);
      const key = keyOf(process.identity);
      exits.set(key, null);
      process.onExit((reason) => {
        exits.set(key, reason);
        reconcile();
      });
      records.set(name, started(record, process.identity, now));
      logger.info({ name, pid: process.identity.pid }, record.startedAt === null ? 'started' : 'restarted');
    } catch (error) {
      const reason = `failed to start: ${messageOf(error)}`;
      logger.error({ name, err: error }, reason);
      records.set(name, ended({ ...record, startedAt: null }, reason, now));
    }
  };
  const reconcileProcess = (name: string) => {
    let record = records.get(name) ?? NEW_RECORD;
    if (record.identity) {
      const reason = endOf(name, record.identity);
      if (reason === null) return;
      exits.delete(keyOf(record.identity));
      record = ended(record, reason, clock.now());
      records.set(name, record);
      logger.warn({ name, failures: record.failures }, reason);
    }
    if ((record.startAt ?? 0) > clock.now() || options.mayStart?.(name) === false) return;
    start(name, record);
  };
  const save = () => {
    const contents = Object.fromEntries(records);
    const text = JSON.stringify(contents);
    if (text === saved) return;
    saved = text;
    options.save(contents);
  };
  const reconcile = () => {
    if (isClosed) return;
    cancel();
    cancel = clock.after(POLL_MS, reconcile);
    const wanted = options.wanted();
    for (const name of records.keys()) if (!wanted.includes(name)) records.delete(name);
    for (const name of wanted) reconcileProcess(name);
    save();
  };

  return {
    reconcile,
    hurry() {
      for (const [name, record] of records)
        if (!record.identity) records.set(name, { ...record, startAt: 0 });
      reconcile();
    },
    close() {
      isClosed = true;
      cancel();
    },
  };
}

const keyOf = ({ pid, startTime }: ProcessIdentity) => `${pid} ${startTime}`;
