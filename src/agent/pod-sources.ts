import { Counter, Gauge } from 'prom-client';
import type { Informer } from '../kube/informer.ts';
import { keyOf, type Namespace, type Pod, RESOURCES, splitKey } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { ALLOWED_SOURCES, EXTRA_SOURCES, extraSources } from '../network/extra-sources.ts';
import type { PodNetwork } from '../network/pod-network.ts';
import { UNGUARDED } from '../network/source-guard.ts';
import type { AgentContext } from './agent-context.ts';

/** Interval at which the kernel's counters are read for events. */
const READ_MS = 10_000;
/** A pod gets an event of forged packets at most this often. */
const EVENT_MS = 300_000;

/**
 * Reports packets of the node's pods that were dropped for their source, as metrics and as events of the pods, and lets pods
 * use the additional addresses that annotations permit. Returns the node's pods; null: the kernel cannot drop the packets.
 */
export function startPodSources(context: AgentContext, network: PodNetwork): Informer<Pod> | null {
  const { configuration, clock, logger: parent, registry } = context;
  const logger = parent.child({ part: 'network' });
  createMetrics(registry, network);
  if (network.droppedSources() === null) {
    logger.error({}, UNGUARDED);
    context.nodeEvent('Warning', 'PodsNotGuarded', UNGUARDED);
    return null;
  }
  let namespaces: Informer<Namespace> | null = null;
  /** The message of the last event about refused sources, by pod. */
  const reported = new Map<string, string>();
  const requestOf = (pod: Pod) => pod.metadata?.annotations?.[EXTRA_SOURCES];

  const pods = context.follow(RESOURCES.pods, {
    optional: true,
    fieldSelector: `spec.nodeName=${configuration.nodeName}`,
    transform: trimToSources,
  });
  const apply = (pod: Pod) => {
    const key = keyOf(pod);
    const request = requestOf(pod);
    const permitted = namespaces?.get(splitKey(key).namespace)?.metadata?.annotations?.[ALLOWED_SOURCES];
    const { allowed, refused } = extraSources(request, permitted);
    network.allowSources(key, allowed).catch((error: unknown) => {
      logger.error({ err: error, pod: key }, `failed to allow additional sources: ${messageOf(error)}`);
    });
    // Before the namespaces are known, nothing is refused for good.
    if (!namespaces?.hasSynced) return;
    const message = refused.map(({ text, reason }) => `${text}: ${reason}`).join('; ');
    if (message === (reported.get(key) ?? '')) return;
    reported.set(key, message);
    if (message !== '')
      context.podEvent(pod, 'Warning', 'SourcesNotAllowed', `${EXTRA_SOURCES}: ${message}`.slice(0, 1024));
  };
  const applyAll = (namespace: string) => {
    for (const pod of pods.list()) {
      if (pod.metadata?.namespace === namespace && requestOf(pod) !== undefined) apply(pod);
    }
  };
  /** Namespaces are followed once a pod requests sources. */
  const followNamespaces = () => {
    if (namespaces) return;
    namespaces = context.follow(RESOURCES.namespaces, {
      optional: true,
      transform: ({ metadata }) => {
        const { name = '', resourceVersion = '', annotations = {} } = metadata ?? {};
        const permitted = annotations[ALLOWED_SOURCES];
        return {
          metadata: {
            ...{ name, resourceVersion },
            ...(permitted === undefined ? {} : { annotations: { [ALLOWED_SOURCES]: permitted } }),
          },
        };
      },
    });
    const changed = (one: Namespace) => applyAll(one.metadata?.name ?? '');
    namespaces.handle({ onAdd: changed, onUpdate: changed, onDelete: changed });
    namespaces.synced.then(
      () => {
        for (const pod of pods.list()) if (requestOf(pod) !== undefined) apply(pod);
      },
      () => {},
    );
  };
  pods.handle({
    onAdd(pod) {
      if (requestOf(pod) === undefined) return;
      followNamespaces();
      apply(pod);
    },
    onUpdate(pod, before) {
      if (requestOf(pod) === requestOf(before)) return;
      followNamespaces();
      apply(pod);
    },
    onDelete(pod) {
      reported.delete(keyOf(pod));
      if (requestOf(pod) !== undefined) void network.allowSources(keyOf(pod), []).catch(() => {});
    },
  });

  /** The counts of forged packets, and when each pod's last event was. */
  const seen = new Map<string, { count: number; at: number }>();
  let cancel = () => {};
  const read = () => {
    try {
      reportForgers();
    } catch (error) {
      logger.warn({ err: error }, `cannot read the counters of forged packets: ${messageOf(error)}`);
    }
    cancel = clock.after(READ_MS, read);
  };
  const reportForgers = () => {
    const counts = network.droppedSources()?.byPod ?? new Map<string, number>();
    for (const key of seen.keys()) if (!counts.has(key)) seen.delete(key);
    for (const [key, count] of counts) {
      const before = seen.get(key) ?? { count: 0, at: Number.NEGATIVE_INFINITY };
      const pod = pods.get(key);
      // A rewritten table counts from zero.
      const fresh = count >= before.count ? count - before.count : count;
      if (!pod || fresh === 0 || clock.now() - before.at < EVENT_MS) continue;
      seen.set(key, { count, at: clock.now() });
      context.podEvent(
        pod,
        'Warning',
        'ForgedPackets',
        `dropped ${fresh} packets whose source is not an address of the pod`,
      );
    }
  };
  read();
  context.onClose(() => cancel());
  return pods;
}

function createMetrics(registry: AgentContext['registry'], network: PodNetwork): void {
  const registers = [registry];
  new Gauge({
    name: 'fairlead_pods_guarded',
    help: '1: packets of pods pass only with the addresses of their pod; 0: the kernel does not support it.',
    registers,
    collect() {
      this.set(network.droppedSources() === null ? 0 : 1);
    },
  });
  new Counter({
    name: 'fairlead_pod_dropped_packets_total',
    help: "Packets of pods that were dropped before any policy: forged ones, with a source that is not the pod's, and stray ones, which may not leave a pod.",
    labelNames: ['reason'],
    registers,
    collect() {
      this.reset();
      const { forged = 0, stray = 0 } = network.droppedSources() ?? {};
      this.inc({ reason: 'forged' }, forged);
      this.inc({ reason: 'stray' }, stray);
    },
  });
  new Counter({
    name: 'fairlead_pod_forged_packets_total',
    help: 'Packets that were dropped because their source is not an address of the pod that sent them.',
    labelNames: ['namespace', 'pod'],
    registers,
    collect() {
      this.reset();
      for (const [key, count] of network.droppedSources()?.byPod ?? []) {
        const { namespace, name: pod } = splitKey(key);
        this.inc({ namespace, pod }, count);
      }
    },
  });
}

/** Keeps a pod's identity and the sources that it requests. */
function trimToSources({ metadata }: Pod): Pod {
  const { name, namespace, uid, resourceVersion } = metadata ?? {};
  const request = metadata?.annotations?.[EXTRA_SOURCES];
  return {
    metadata: {
      ...(name === undefined ? {} : { name }),
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(request === undefined ? {} : { annotations: { [EXTRA_SOURCES]: request } }),
    },
  } as Pod;
}
