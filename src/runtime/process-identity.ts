import { readFileSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** A process by number and start time (clock ticks since boot): numbers are used again, both together are not. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: string;
}

/** The process that runs under a number now; null when there is none, or a zombie. proc(5): field 3 state, 22 starttime. */
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

/** Sends a signal to that very process; false when it is gone. */
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
