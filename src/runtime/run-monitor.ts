import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { identify, isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { hasCode } from '../lib/errors.ts';

const ROUNDS = 200;
const ROUND_MS = 10;

/** Returns the running conmon of a run: its PID is in a file, and its command line identifies the bundle. */
export function monitorOf(bundle: string): ProcessIdentity | null {
  try {
    const pid = Number(readFileSync(join(bundle, 'conmon.pid'), 'utf8'));
    const identity = identify(pid);
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return command.includes(bundle) ? identity : null;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return null;
    throw error;
  }
}

/** Waits, for a limited time, until the monitor of a deleted container has written its last message. */
export async function monitorEnded(bundle: string): Promise<void> {
  const monitor = monitorOf(bundle);
  for (let round = 0; monitor && isRunning(monitor) && round < ROUNDS; round++) {
    await new Promise((resolve) => setTimeout(resolve, ROUND_MS));
  }
}
