import type { Clock } from '../lib/clock.ts';
import { type GracePeriod, MAX_TIMER_MS } from './grace-period.ts';
import type { ProbeResult } from './probe-result.ts';
import type { RunExit } from './run-exit.ts';

/** The minimum time for the process after a preStop hook, which may have used up the grace period. */
const MIN_AFTER_HOOK_MS = 2000;

export interface RunStop {
  readonly clock: Clock;
  /** When the process is killed, in the clock's milliseconds; earlier if the pod's grace period ends before. */
  readonly deadline: number;
  readonly grace: GracePeriod;
  readonly exit: RunExit;
  /** Runs the preStop hook, for at most `ms` milliseconds or until `signal`; null: there is none. */
  readonly hook: ((ms: number, signal: AbortSignal) => Promise<ProbeResult>) | null;
  readonly hookFailed: (message: string) => void;
  /** Resolves when Services send no new connections to the pod, or it must be stopped nevertheless. */
  readonly quiet: Promise<void>;
  readonly isRunning: () => boolean;
  /** Asks the process to end. */
  readonly terminate: () => void;
  readonly kill: () => void;
}

/**
 * Stops a run: preStop hook, termination signal when the pod is quiet, and SIGKILL at the deadline. The time of the hook and
 * of the traffic's end counts.
 */
export async function stopRun(stop: RunStop): Promise<void> {
  const { clock, deadline, grace, exit } = stop;
  const left = () => Math.min(deadline, grace.endsAt) - clock.now();
  let notBefore = Number.NEGATIVE_INFINITY;
  if (stop.hook && left() > 0) {
    await runPreStop(stop, stop.hook, Math.min(left(), MAX_TIMER_MS));
    notBefore = clock.now() + MIN_AFTER_HOOK_MS;
  }
  if (stop.isRunning() && left() > 0) await exit.during(stop.quiet, Math.min(left(), MAX_TIMER_MS));
  const killAt = () => Math.max(notBefore, Math.min(deadline, grace.endsAt));
  if (stop.isRunning() && killAt() > clock.now()) {
    stop.terminate();
    await exit.until(killAt);
  }
  if (stop.isRunning()) {
    stop.kill();
    await exit.detected();
  }
}

async function runPreStop(
  { deadline, grace, exit, hookFailed }: RunStop,
  hook: NonNullable<RunStop['hook']>,
  ms: number,
): Promise<void> {
  const over = new AbortController();
  const late = Promise.withResolvers<null>();
  const cancel = grace.after(deadline, () => late.resolve(null));
  const result = await exit.during(Promise.race([hook(ms, over.signal), late.promise]), ms);
  cancel();
  over.abort();
  if (result && !result.ok) hookFailed(result.message);
}
