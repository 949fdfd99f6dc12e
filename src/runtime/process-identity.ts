import { readFileSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** A process, identified by PID and start time (clock ticks since boot), since PIDs are reused. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: string;
}

/** Returns the process with a PID; null if there is none, or a zombie. proc(5): field 3 state, 22 starttime. */
export function identify(pid: number): ProcessIdentity | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const startTime = fields[19];
    return fields[0] === 'Z' || fields[0] === 'X' || startTime === undefined ? null : { pid, startTime };
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return null;
    throw error;
  }
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.startTime === identity.startTime;
}

/** Sends a signal to this process; returns false if it is gone. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch (error) {
    if (hasCode(error, 'ESRCH')) return false;
    throw error;
  }
}
