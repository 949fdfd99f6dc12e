import { readFileSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** A process, identified by its PID and start time (clock ticks since boot), since PIDs are reused. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: string;
}

/** Returns the identity of a running process; null if it has ended or is a zombie. */
export function identify(pid: number): ProcessIdentity | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return null;
    throw error;
  }
  // The command's name, in parentheses, may contain spaces: fields count from its end (proc(5): 3 state, 22 starttime).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const startTime = fields[19];
  return fields[0] === 'Z' || fields[0] === 'X' || startTime === undefined ? null : { pid, startTime };
}

/** Reports whether this process is still running. */
export function isRunning(identity: ProcessIdentity | null): identity is ProcessIdentity {
  return identity !== null && identify(identity.pid)?.startTime === identity.startTime;
}

/** Sends a signal to this process; returns false if it has ended, even while it is signalled. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isRunning(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch (error) {
    if (hasCode(error, 'ESRCH')) return false;
    throw error;
  }
}
