import { Counter, Gauge } from 'prom-client';
import type { NetnsRef } from '../kernel/netns.ts';
import { type Pod, splitKey } from '../kube/types.ts';
import { type HeldPod, openConnectionBound } from '../network/connection-bound.ts';
import { POD_BRIDGE } from '../network/pod-bridge.ts';
import type { PodNetwork } from '../network/pod-network.ts';
import type { AgentContext } from './agent-context.ts';

/** Interval at which pods that are held get an event. */
const EVENT_MS = 60_000;

/** Bounds the tracked connections of each pod; reports pods that are held, as metrics and as events of the pods. */
export function startConnectionBound(
  context: AgentContext,
  network: PodNetwork,
  netns: NetnsRef | undefined,
  podOf: (key: string) => Pod | null,
): void {
  const { configuration, clock, registry } = context;
  const logger = context.logger.child({ part: 'network' });
  const share = configuration.network?.maxConnectionsPerPod ?? null;
  if (share === 0) return;
  /** When each pod's last event was. */
  const reported = new Map<string, number>();
  const report = ({ pod: key, connections, share: allowed }: HeldPod) => {
    if (clock.now() - (reported.get(key) ?? Number.NEGATIVE_INFINITY) < EVENT_MS) return;
    reported.set(key, clock.now());
    const pod = podOf(key);
    const message = `the pod has about ${connections} tracked connections, more than ${allowed}: it opens no more until some have ended (${bound.dropped().get(key) ?? 0} packets dropped)`;
    logger.warn({ pod: key }, message);
    if (pod) context.podEvent(pod, 'Warning', 'TooManyConnections', message);
  };
  const bound = openConnectionBound({
    bridge: POD_BRIDGE,
    share,
    ownerOf: network.ownerOf,
    onHeld: report,
    ...{ netns, clock, logger },
  });
  let cancel = () => {};
  const repeat = () => {
    for (const pod of bound.held()) report(pod);
    for (const [key, at] of reported) if (clock.now() - at >= EVENT_MS) reported.delete(key);
    cancel = clock.after(EVENT_MS, repeat);
  };
  repeat();
  context.onClose(() => {
    cancel();
    bound.close();
  });
  const registers = [registry];
  new Gauge({
    name: 'fairlead_pods_held',
    help: 'Pods that have more tracked connections than one pod may have, and open no more.',
    registers,
    collect() {
      this.set(bound.held().length);
    },
  });
  new Counter({
    name: 'fairlead_pod_held_packets_total',
    help: 'Packets for new connections that were dropped because their pod has too many tracked connections.',
    labelNames: ['namespace', 'pod'],
    registers,
    collect() {
      this.reset();
      for (const [key, count] of bound.dropped()) {
        const { namespace, name: pod } = splitKey(key);
        this.inc({ namespace, pod }, count);
      }
    },
  });
}
