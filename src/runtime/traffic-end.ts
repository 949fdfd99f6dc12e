import type { Pod } from '../kube/types.ts';
import { afterRunning, type Clock, pause } from '../lib/clock.ts';

/** The maximum wait for a pod to leave the EndpointSlices; never more than half of the grace period. */
const MAX_WAIT_MS = 2000;
const POLL_MS = 20;
/**
 * Other nodes receive the change at about the same time, and their proxies program it. Time in which this process did not
 * run does not count, since the machine of a local cluster delays all nodes.
 */
const SETTLE_MS = 500;

/**
 * What EndpointSlices say about a pod: it gets new connections; it is listed, but not as ready; or no slice lists it.
 */
export type Traffic = 'new' | 'ending' | 'none';

/**
 * Waits until Services send no new connections to a pod that is about to be stopped, so that a server that stops
 * listening at SIGTERM refuses none. Upstream's kubelet does not wait; there, each such pod needs a preStop hook.
 * Returns immediately for pods that are in no EndpointSlice, whose containers all have a preStop hook, or without a
 * grace period. The slices may have changed before this is called: other nodes need the time nevertheless.
 */
export async function untilTrafficEnds(options: {
  readonly pod: Pod;
  readonly graceMs: number;
  readonly clock: Clock;
  readonly traffic: () => Traffic | Promise<Traffic>;
  /** Reports whether the pod is to be stopped without further delay. */
  readonly isUrgent: () => boolean;
}): Promise<void> {
  const { pod, clock, traffic, isUrgent } = options;
  const needsWait = (pod.spec?.containers ?? []).some(({ lifecycle }) => lifecycle?.preStop === undefined);
  const limit = Math.min(MAX_WAIT_MS, options.graceMs / 2);
  if (!needsWait || limit <= 0 || (await traffic()) === 'none') return;
  const deadline = clock.now() + limit;
  while ((await traffic()) === 'new' && !isUrgent() && clock.now() < deadline) await pause(clock, POLL_MS);
  if (isUrgent()) return;
  const settleMs = Math.max(0, Math.min(SETTLE_MS, deadline - clock.now()));
  await new Promise<void>((resolve) => void afterRunning(clock, settleMs, resolve));
}
