import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { isRunning, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';

/** Waits for the end of its standard input, which the end of its parent causes too. */
const RESUME = 'read -r line; kill -CONT "$1"';

const POLL_MS = 1;
/** A thread that waits for a disk stops when the disk has answered. */
const STOP_MS = 10_000;

/**
 * Runs `work` while all threads of a process are suspended (SIGSTOP). The process goes on afterwards, also if this one is
 * killed meanwhile. Throws FairleadError ETIMEDOUT if a thread does not stop.
 */
export async function whileSuspended(target: ProcessIdentity, work: () => void): Promise<void> {
  // A session of its own: Ctrl-C at the terminal does not end it.
  const guard = spawn('sh', ['-c', RESUME, 'sh', `${target.pid}`], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  await once(guard, 'spawn');
  try {
    if (signalProcess(target, 'SIGSTOP')) await stopped(target);
    work();
  } finally {
    signalProcess(target, 'SIGCONT');
    guard.stdin.end();
    await once(guard, 'exit');
  }
}

/** Resolves when the process no longer runs: kill(2) returns before its threads have stopped. */
async function stopped(target: ProcessIdentity): Promise<void> {
  const end = performance.now() + STOP_MS;
  while (isRunning(target) && !isStopped(target.pid)) {
    if (performance.now() > end)
      throw new FairleadError(`process ${target.pid} does not stop: a thread waits for its disk`, {
        op: 'suspend a process',
        code: 'ETIMEDOUT',
        object: `${target.pid}`,
        hint: 'try again when the disk is less busy',
      });
    await setTimeout(POLL_MS);
  }
}

/** Returns true if all threads are stopped, in the state T of proc(5). */
function isStopped(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).every((thread) =>
      /\) T [^)]*$/.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1')),
    );
  } catch (error) {
    // A thread has ended since it was listed.
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    throw error;
  }
}
