import { hasReason } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import { observedGeneration } from '../kube/observed-generation.ts';
import { timestamp } from '../kube/timestamp.ts';
import { type Lease, type Node, type NodeCondition, type Pod, RESOURCES, type Taint } from '../kube/types.ts';
import { NOT_READY_TAINT, UNREACHABLE_TAINT } from '../kube/well-known-labels.ts';
import { same } from './canonical.ts';
import { all, type Caches, type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import { conditionOf, isFinished, timeOf } from './pods.ts';
import { nodeTaints, tolerates } from './taints.ts';

const LEASE_NAMESPACE = 'kube-node-lease';
/** Pods without their own tolerations stay this long on an unhealthy node (upstream's admission sets that). */
const DEFAULT_TOLERATION_SECONDS = 300;
/** A pod bound to a node that does not exist waits this long for the node. */
const MISSING_NODE_MS = 40_000;
const REPORTED = ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure'] as const;

export interface NodeHealthView {
  readonly node: Node;
  /** The Lease has not been renewed for its duration. */
  readonly expired: boolean;
  readonly now: number;
}

export interface NodeHealthPlan {
  readonly conditions: NodeCondition[] | null;
  readonly taints: Taint[] | null;
  /** Pods on the node are to be marked not ready. */
  readonly unready: boolean;
}

/** Computes a node's conditions and taints from its silence or its own reports. Pure. */
export function reconcileNodeHealth(view: NodeHealthView): NodeHealthPlan {
  const { node, expired, now } = view;
  const known = node.status?.conditions ?? [];
  const conditions = expired ? REPORTED.map((type) => unknownCondition(known, type, now)) : null;
  const others = known.filter(({ type }) => !(REPORTED as readonly string[]).includes(type));
  const after = conditions ? [...conditions, ...others] : known;
  const current = node.spec?.taints ?? [];
  const taints = nodeTaints({ ...node, status: { ...node.status, conditions: after } }).map((taint) => {
    const before = current.find(({ key, effect }) => key === taint.key && effect === taint.effect);
    // Without its time, pods that tolerate it for a limited time would never be evicted.
    if (before && (before.timeAdded || taint.effect !== 'NoExecute')) return before;
    return taint.effect === 'NoExecute' ? { ...taint, timeAdded: timestamp(now) } : taint;
  });
  const ready = after.find(({ type }) => type === 'Ready');
  // A node that has never reported its state gets no taint: the scheduler skips it anyway.
  const silent = !after.some(({ type }) => type === 'Ready');
  return {
    conditions: conditions && !same(sorted(after), sorted(known)) ? after : null,
    taints: silent || same(taints, current) ? null : taints,
    unready: ready !== undefined && ready.status !== 'True',
  };
}

function sorted(conditions: readonly NodeCondition[]): NodeCondition[] {
  return [...conditions].sort((a, b) => (a.type < b.type ? -1 : 1));
}

function unknownCondition(known: readonly NodeCondition[], type: string, now: number): NodeCondition {
  const before = known.find((condition) => condition.type === type);
  if (before?.status === 'Unknown') return before;
  const never = before === undefined;
  return {
    type,
    status: 'Unknown',
    reason: never ? 'NodeStatusNeverUpdated' : 'NodeStatusUnknown',
    message: never ? 'Kubelet never posted node status.' : 'Kubelet stopped posting node status.',
    ...(before?.lastHeartbeatTime ? { lastHeartbeatTime: before.lastHeartbeatTime } : {}),
    lastTransitionTime: timestamp(now),
  };
}

/**
 * Returns when a pod must leave its node because of NoExecute taints: milliseconds since 1970, or null for never. Pure.
 */
export function evictionTime(pod: Pod, taints: readonly Taint[], now: number): number | null {
  let earliest: number | null = null;
  for (const taint of taints) {
    if (taint.effect !== 'NoExecute') continue;
    const matching = (pod.spec?.tolerations ?? []).filter((toleration) => tolerates(toleration, taint));
    const sick = [NOT_READY_TAINT, UNREACHABLE_TAINT].includes(taint.key);
    const seconds =
      matching.length > 0
        ? Math.min(...matching.map(({ tolerationSeconds }) => tolerationSeconds ?? Number.POSITIVE_INFINITY))
        : sick
          ? DEFAULT_TOLERATION_SECONDS
          : 0;
    if (!Number.isFinite(seconds)) continue;
    const since = taint.timeAdded ? timeOf(taint.timeAdded) : now;
    const at = since + Math.max(0, seconds) * 1000;
    earliest = earliest === null ? at : Math.min(earliest, at);
  }
  return earliest;
}

/** The state that the steps of the controller share. */
interface Lifecycle extends ControllerContext {
  readonly pods: Caches['pods'];
  readonly events: EventRecorder;
  /** Nodes that have existed. */
  readonly heardOf: ReadonlySet<string>;
  /** Looks at a pod again after this time. */
  readonly retry: (pod: Pod, ms: number) => void;
}

/** Detects nodes that stop reporting, taints them, removes their pods from Services, and evicts pods in time. */
export function startNodeLifecycle(context: ControllerContext): void {
  const { caches, clock, options } = context;
  const { nodes, pods, leases } = caches;
  const events = recorderFor(context, 'node-controller');
  const heardOf = new Set<string>();
  const work: Lifecycle = {
    ...context,
    ...{ pods, events, heardOf },
    retry: (pod, ms) => eviction.addAfter(podKey(pod), ms),
  };
  const BY_NODE = 'node';
  pods.informer.addIndex(BY_NODE, (pod) => (pod.spec?.nodeName ? [pod.spec.nodeName] : []));
  /** Time of each node's last sign of life, by our own clock: nodes' clocks may be wrong. */
  const heard = new Map<string, { renewTime: string; at: number }>();

  const graceOf = (name: string) =>
    (options.nodeGraceSeconds ?? leases.get(LEASE_NAMESPACE, name)?.spec?.leaseDurationSeconds ?? 40) * 1000;
  const hear = (name: string, renewTime: string) => {
    if (heard.get(name)?.renewTime === renewTime) return;
    heard.set(name, { renewTime, at: clock.now() });
    queue.add(name);
  };
  const queue = controllerQueue(context, 'node-lifecycle', async (name) => {
    const node = nodes.get(undefined, name);
    if (!node) {
      heard.delete(name);
      return;
    }
    const last = heard.get(name) ?? { renewTime: '', at: clock.now() };
    heard.set(name, last);
    const silentFor = clock.now() - last.at;
    const grace = graceOf(name);
    const plan = reconcileNodeHealth({ node, expired: silentFor >= grace, now: clock.now() });
    if (silentFor < grace) queue.addAfter(name, grace - silentFor);
    if (plan.conditions) {
      await nodes.patch(node, 'strategic', { status: { conditions: plan.conditions } }, 'status');
      const message = `Node ${name} status is now: NodeNotReady`;
      events.event(node, 'Normal', 'NodeNotReady', message, RESOURCES.nodes);
    }
    if (plan.taints) {
      const fresh = nodes.get(undefined, name) ?? node;
      const { uid, resourceVersion } = fresh.metadata ?? {};
      await nodes.patch(fresh, 'merge', {
        metadata: { uid, resourceVersion },
        spec: { taints: plan.taints.length > 0 ? plan.taints : null },
      });
    }
    if (plan.unready) await all(pods.informer.byIndex(BY_NODE, name).map((pod) => markUnready(work, pod)));
    for (const pod of pods.informer.byIndex(BY_NODE, name)) eviction.add(podKey(pod));
  });

  const eviction = controllerQueue(context, 'taint-eviction', async (key) => {
    const pod = pods.informer.get(key);
    const name = pod?.spec?.nodeName;
    if (!pod || !name) return;
    const node = nodes.get(undefined, name);
    if (!node) {
      await collectLost(work, pod, name);
      return;
    }
    if (pod.metadata?.deletionTimestamp !== undefined || isFinished(pod)) return;
    const at = evictionTime(pod, node.spec?.taints ?? [], clock.now());
    if (at === null) return;
    const left = at - clock.now();
    if (left > 0) {
      eviction.addAfter(key, left);
      return;
    }
    events.event(pod, 'Normal', 'TaintManagerEviction', `Marking for deletion Pod ${key}`, RESOURCES.pods);
    await markDisrupted(
      work,
      pod,
      'DeletionByTaintManager',
      'Taint manager: deleting due to NoExecute taint',
    );
    await pods.delete(pod);
  });

  const leaseChanged = (lease: Lease) => {
    const { namespace, name = '' } = lease.metadata ?? {};
    if (namespace === LEASE_NAMESPACE) hear(name, lease.spec?.renewTime ?? '');
  };
  leases.informer.handle({ onAdd: leaseChanged, onUpdate: leaseChanged });
  nodes.informer.handle({
    onAdd(node) {
      const name = node.metadata?.name ?? '';
      heardOf.add(name);
      queue.add(name);
    },
    onUpdate(node, before) {
      const name = node.metadata?.name ?? '';
      // A status update is a sign of life, too.
      const beat = (object: Node) =>
        object.status?.conditions?.find(({ type, status }) => type === 'Ready' && status !== 'Unknown')
          ?.lastHeartbeatTime;
      const now = beat(node);
      if (now !== undefined && now !== beat(before)) hear(name, now);
      queue.add(name);
    },
    onDelete(node) {
      const name = node.metadata?.name ?? '';
      heard.delete(name);
      for (const pod of pods.informer.byIndex(BY_NODE, name)) eviction.add(podKey(pod));
    },
  });
  pods.informer.handle({
    onAdd: (pod) => eviction.add(podKey(pod)),
    onUpdate(pod, before) {
      if (pod.spec?.nodeName !== before.spec?.nodeName) eviction.add(podKey(pod));
    },
  });
}

/** Removes the pod from its Services' endpoints: its node can no longer report its state. */
const markUnready = async (work: Lifecycle, pod: Pod) => {
  const ready = conditionOf(pod, 'Ready');
  if (ready?.status !== 'True') return;
  const now = timestamp(work.clock.now());
  const condition = { type: 'Ready', status: 'False', reason: 'NodeNotReady', lastTransitionTime: now };
  const { uid } = pod.metadata ?? {};
  await work.pods.patch(
    pod,
    'strategic',
    { metadata: { uid }, status: { conditions: [condition] } },
    'status',
  );
  work.events.event(pod, 'Warning', 'NodeNotReady', 'Node is not ready', RESOURCES.pods);
};

/** Deletes a pod whose node is permanently gone (upstream's PodGC). */
const collectLost = async (work: Lifecycle, pod: Pod, node: string) => {
  try {
    await work.client.get(RESOURCES.nodes, node, undefined, { signal: work.signal });
    return;
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
  }
  const age = work.clock.now() - timeOf(pod.metadata?.creationTimestamp);
  // The pod may have been bound manually to a node that is still starting.
  if (!work.heardOf.has(node) && age < MISSING_NODE_MS) {
    work.retry(pod, MISSING_NODE_MS - age);
    return;
  }
  if (!isFinished(pod)) {
    // No agent remains that could report how it ended.
    await markDisrupted(work, pod, 'DeletionByPodGC', 'PodGC: node no longer exists', 'Failed');
  }
  await work.pods.delete(pod, { gracePeriodSeconds: 0 });
};

/** Records why a pod is deleted: Jobs distinguish disruptions from failures by it (KEP-3329). */
const markDisrupted = async (work: Lifecycle, pod: Pod, reason: string, message: string, phase?: string) => {
  const condition = {
    type: 'DisruptionTarget',
    ...observedGeneration(pod),
    status: 'True',
    reason,
    message,
    lastTransitionTime: timestamp(work.clock.now()),
  };
  const status = { conditions: [condition], ...(phase ? { phase } : {}) };
  await work.pods.patch(pod, 'strategic', { metadata: { uid: pod.metadata?.uid }, status }, 'status');
};

const podKey = (pod: Pod) => `${pod.metadata?.namespace}/${pod.metadata?.name}`;
