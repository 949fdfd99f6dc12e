import type { Pod } from '../kube/types.ts';
import { afterRunning, type Clock, pause } from '../lib/clock.ts';

/**
 * The knowledge about the traffic of Services to a pod:
 * - `new`: it gets new connections, until its Services' controller takes it out of the EndpointSlices
 * - `kept`: it gets new connections, by a slice that a user or another controller wrote, and which may not change
 * - `programming`: no slice lists it as ready, but nodes still forward by earlier ones
 * - `ending`: no node sends it new connections, as far as nodes can be asked
 * - `none`: no slice lists it
 */
export type Traffic = 'new' | 'kept' | 'programming' | 'ending' | 'none';

/** The maximum wait, from the pod's deletion on; never more than half of the grace period. */
const MAX_WAIT_MS: Readonly<Record<Exclude<Traffic, 'ending' | 'none'>, number>> = {
  new: 10_000,
  kept: 2000,
  programming: 10_000,
};
const POLL_MS = 20;
/**
 * For packets in flight, and for nodes that cannot be asked: they receive the change at about the same time. Time in which
 * this process did not run does not count, since the machine of a local cluster delays all nodes.
 */
const SETTLE_MS = 500;

/**
 * Waits until Services send no new connections to a pod that is about to be stopped, so that a server that stops
 * listening at SIGTERM refuses none. Upstream's kubelet does not wait; there, each such pod needs a preStop hook.
 * Returns immediately for pods that are in no EndpointSlice, or without a grace period. The slices may have changed before
 * this is called: other nodes need the time nevertheless.
 */
export async function untilTrafficEnds(options: {
  readonly graceMs: number;
  readonly clock: Clock;
  readonly traffic: () => Traffic | Promise<Traffic>;
  /** Reports whether the pod is to be stopped without further delay. */
  readonly isUrgent: () => boolean;
}): Promise<void> {
  const { clock, traffic, isUrgent } = options;
  const began = clock.now();
  const limit = options.graceMs / 2;
  let now = limit <= 0 ? 'none' : await traffic();
  if (now === 'none') return;
  while (now !== 'ending' && now !== 'none') {
    if (isUrgent() || clock.now() >= began + Math.min(MAX_WAIT_MS[now], limit)) return;
    await pause(clock, POLL_MS);
    now = await traffic();
  }
  if (isUrgent()) return;
  const settleMs = Math.max(0, Math.min(SETTLE_MS, began + limit - clock.now()));
  await new Promise<void>((resolve) => void afterRunning(clock, settleMs, resolve));
}

/** Reports whether a container of the pod has no preStop hook, which would give Services time before its SIGTERM. */
export const hasUnguarded = (pod: Pod): boolean =>
  (pod.spec?.containers ?? []).some(({ lifecycle }) => lifecycle?.preStop === undefined);
