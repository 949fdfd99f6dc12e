import type { Container } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { type ProbeTarget, runProbe } from './probe.ts';
import type { ProbeResult } from './probe-result.ts';

export type LifecycleHook = NonNullable<NonNullable<Container['lifecycle']>['preStop']>;

/** Executes a hook's action: a probe's, or `sleep`, which only hooks support (KEP-3960), and which `signal` ends. Never throws. */
export async function runHook(
  hook: LifecycleHook,
  target: ProbeTarget,
  clock: Clock,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<ProbeResult> {
  if (!hook.sleep) return await runProbe(hook, target, timeoutMs);
  await pause(clock, Math.min(timeoutMs, (hook.sleep.seconds ?? 0) * 1000), signal);
  return { ok: true, message: '' };
}
