import type { Pod } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';

/** The maximum wait for a pod to leave the EndpointSlices; never more than half of the grace period. */
const MAX_WAIT_MS = 2000;
const POLL_MS = 20;
/** Other nodes receive the change at about the same time, and their proxies program it. */
const SETTLE_MS = 250;

/**
 * Waits until Services send no new connections to a pod that is about to be stopped, so that a server that stops
 * listening at SIGTERM refuses none. Upstream's kubelet does not wait; there, each such pod needs a preStop hook.
 * Returns immediately for pods that are in no EndpointSlice, whose containers all have a preStop hook, or without a
 * grace period.
 */
export async function untilTrafficEnds(options: {
  readonly pod: Pod;
  readonly graceMs: number;
  readonly clock: Clock;
  /** Reports whether an EndpointSlice lists the pod as ready. */
  readonly receivesTraffic: () => boolean;
  /** Reports whether the pod is to be stopped without further delay. */
  readonly isUrgent: () => boolean;
}): Promise<void> {
  const { pod, clock, receivesTraffic, isUrgent } = options;
  const needsWait = (pod.spec?.containers ?? []).some(({ lifecycle }) => lifecycle?.preStop === undefined);
  const limit = Math.min(MAX_WAIT_MS, options.graceMs / 2);
  if (!needsWait || limit <= 0 || !receivesTraffic()) return;
  const deadline = clock.now() + limit;
  while (receivesTraffic() && !isUrgent() && clock.now() < deadline) await pause(clock, POLL_MS);
  if (!isUrgent()) await pause(clock, Math.max(0, Math.min(SETTLE_MS, deadline - clock.now())));
}
