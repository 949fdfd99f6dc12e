import { pathOf } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import { observedGeneration } from '../kube/observed-generation.ts';
import { selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Pod, RESOURCES } from '../kube/types.ts';
import type { WorkQueue } from '../lib/work-queue.ts';
import { all, type Caches, type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import {
  failureMessage,
  type NodeLoad,
  type NodeRefusal,
  nodeRefusal,
  selectNode,
  withNamespaces,
} from './node-selection.ts';
import { isFinished } from './pods.ts';
import { findPreemption, priorityOf } from './preemption.ts';
import { boundVolume } from './storage/binding.ts';
import { claimsOf, isFullyBound, SELECTED_NODE } from './storage/claims.ts';
import {
  exclusiveRefusal,
  type NodeVolumes,
  podVolumes,
  type VolumeSources,
  volumesOn,
} from './storage/volume-scheduling.ts';

const SCHEDULER = 'default-scheduler';
/** A pod whose volumes are not bound after this time is scheduled again (upstream's bindTimeoutSeconds). */
const BIND_TIMEOUT_MS = 600_000;

/** A decision that the cache does not show yet. It counts for subsequent decisions. */
interface Assumed {
  readonly pod: Pod;
  readonly node: string;
  /** Volumes that must be bound first; null if they are bound. */
  readonly volumes: NodeVolumes | null;
  readonly since: number;
}

/** The state of the scheduler. */
interface Scheduling extends Omit<ControllerContext, 'caches'>, Caches {
  readonly events: EventRecorder;
  readonly queue: WorkQueue;
  /** By pod's uid. */
  readonly assumed: Map<string, Assumed>;
  /** Keys of pods that fit nowhere. */
  readonly waiting: Set<string>;
  /** Pods by node; maintained incrementally, because each decision reads all of it. */
  readonly placed: Map<string, Map<string, Pod>>;
}

/** Assigns pods to nodes as soon as they appear; pods that fit nowhere wait for a change of nodes or pods. */
export function startScheduler(context: ControllerContext): void {
  const { nodes, persistentVolumes, persistentVolumeClaims, storageClasses, pods } = context.caches;
  const work: Scheduling = {
    ...context,
    ...context.caches,
    events: recorderFor(context, SCHEDULER),
    assumed: new Map(),
    waiting: new Set(),
    placed: new Map(),
    queue: controllerQueue(context, 'scheduler', (key) => schedule(work, key)),
  };
  const { assumed, waiting, placed, queue } = work;
  const retry = () => retryWaiting(work);
  pods.informer.handle({
    onAdd: (pod) => settle(work, pod),
    onUpdate(pod, before) {
      settle(work, pod);
      const changed =
        pod.metadata?.generation !== before.metadata?.generation ||
        JSON.stringify(pod.metadata?.labels) !== JSON.stringify(before.metadata?.labels);
      if (changed && waiting.has(keyOf(pod))) queue.add(keyOf(pod));
      // Free resources, or a pod to which others have affinity.
      if (isFinished(pod) !== isFinished(before) || !pod.spec?.nodeName !== !before.spec?.nodeName) retry();
    },
    onDelete(pod) {
      const uid = pod.metadata?.uid ?? '';
      removePlacement(work, assumed.get(uid)?.node, pod);
      removePlacement(work, pod.spec?.nodeName, pod);
      assumed.delete(uid);
      waiting.delete(keyOf(pod));
      retry();
    },
  });
  nodes.informer.handle({
    onAdd: retry,
    onUpdate(node, before) {
      // Heartbeats change nothing that a pod waits for.
      const relevant = (object: typeof node) =>
        JSON.stringify([
          object.spec,
          object.metadata?.labels,
          object.status?.allocatable,
          object.status?.conditions?.map(({ type, status }) => [type, status]),
        ]);
      if (waiting.size > 0 && relevant(node) !== relevant(before)) retry();
    },
    onDelete(node) {
      if (placed.get(node.metadata?.name ?? '')?.size === 0) placed.delete(node.metadata?.name ?? '');
    },
  });
  const volumesChanged = () => {
    for (const { pod, volumes } of assumed.values()) if (volumes) queue.add(keyOf(pod));
    for (const key of waiting) if (claimsOf(pods.informer.get(key) ?? {}).length > 0) queue.add(key);
  };
  for (const { informer } of [persistentVolumes, persistentVolumeClaims, storageClasses]) {
    informer.handle({ onAdd: volumesChanged, onUpdate: volumesChanged, onDelete: volumesChanged });
  }
}

/** Decides about a pod that is not on a node yet. */
async function schedule(work: Scheduling, key: string): Promise<void> {
  const found = work.pods.informer.get(key);
  work.waiting.delete(key);
  if (!found || !isOurs(work, found)) return;
  const { uid = '' } = found.metadata ?? {};
  const decided = work.assumed.get(uid);
  if (decided) {
    if (decided.volumes) await continueBinding(work, key, decided);
    return;
  }
  const pod = inNamespaces(work, found);
  const loads = loadsFor(work, pod);
  // No await from here until the decision is recorded: decisions never overlap.
  const sources = volumeSources(work);
  const needs = podVolumes(pod, sources);
  const problem = needs.problem ?? exclusiveRefusal(pod, needs, loads);
  if (problem !== null) {
    work.waiting.add(key);
    await reportFailure(work, found, unresolvable(loads.length, problem), undefined);
    return;
  }
  const refuse: NodeRefusal = ({ node }) => {
    const result = volumesOn(needs, node, sources);
    return 'refusal' in result ? result.refusal : null;
  };
  const selection = selectNode(pod, loads, work.random, refuse);
  if (selection.node === null) {
    work.waiting.add(key);
    const preemption = findPreemption(pod, loads, {
      isProtected: (victim) => isProtected(work, victim),
      refuse,
    });
    const message = failureMessage(loads.length, selection.reasons);
    const text = preemption ? message : `${message} ${preemptionMessage(pod, loads, refuse)}`;
    await reportFailure(work, found, text, preemption?.node);
    const node = preemption?.node ?? '';
    await all((preemption?.victims ?? []).map((victim) => preempt(work, victim, pod, node)));
    return;
  }
  const { node } = selection;
  const target = loads.find((load) => load.node.metadata?.name === node)?.node;
  const volumes = target && needs.waiting.length > 0 ? volumesOn(needs, target, sources) : null;
  const decision: Assumed = {
    pod: found,
    node,
    volumes: volumes && !('refusal' in volumes) ? volumes : null,
    since: work.clock.now(),
  };
  work.assumed.set(uid, decision);
  place(work, node, found);
  try {
    if (decision.volumes) await beginBinding(work, decision.volumes, node);
    else await bind(work, decision);
  } catch (error) {
    forget(work, decision);
    throw error;
  }
  if (decision.volumes) work.queue.addAfter(key, BIND_TIMEOUT_MS);
}

const inNamespaces = ({ namespaces }: Scheduling, pod: Pod) =>
  withNamespaces(pod, () => namespaces.informer.list());

/** Reports whether a budget permits no disruption of a pod. */
const isProtected = ({ disruptionBudgets }: Scheduling, pod: Pod): boolean =>
  disruptionBudgets
    .inNamespace(pod.metadata?.namespace ?? '')
    .some(
      ({ spec, status }) =>
        selects(spec?.selector, pod.metadata?.labels) && (status?.disruptionsAllowed ?? 0) <= 0,
    );

const place = (work: Scheduling, node: string, pod: Pod) => {
  const here = work.placed.get(node);
  if (here) here.set(pod.metadata?.uid ?? '', pod);
  else work.placed.set(node, new Map([[pod.metadata?.uid ?? '', pod]]));
};

const removePlacement = (work: Scheduling, node: string | undefined, pod: Pod) => {
  if (node !== undefined) work.placed.get(node)?.delete(pod.metadata?.uid ?? '');
};

const isOurs = (work: Scheduling, pod: Pod) =>
  !pod.spec?.nodeName &&
  (pod.spec?.schedulerName ?? SCHEDULER) === SCHEDULER &&
  (pod.spec?.schedulingGates ?? []).length === 0 &&
  !work.pods.isDeleting(pod) &&
  !isFinished(pod);

/** Returns the nodes as seen by the pod: including pods that were nominated there before it. */
const loadsFor = (work: Scheduling, pod: Pod): NodeLoad[] => {
  const promised = new Map<string, Pod[]>();
  for (const key of work.waiting) {
    const other = work.pods.informer.get(key);
    const node = other?.status?.nominatedNodeName;
    if (!other || !node || other.metadata?.uid === pod.metadata?.uid) continue;
    if (priorityOf(other) < priorityOf(pod)) continue;
    promised.set(node, [...(promised.get(node) ?? []), other]);
  }
  return work.nodes.informer
    .list()
    .filter(({ metadata }) => metadata?.deletionTimestamp === undefined)
    .map((node) => {
      const name = node.metadata?.name ?? '';
      const here = [...(work.placed.get(name)?.values() ?? []), ...(promised.get(name) ?? [])];
      return { node, pods: here.map((one) => inNamespaces(work, one)) };
    });
};

const volumeSources = (work: Scheduling): VolumeSources => ({
  claim: work.persistentVolumeClaims.get,
  volume: (name) => work.persistentVolumes.get(undefined, name),
  volumes: () => work.persistentVolumes.informer.list(),
  storageClass: (name) => work.storageClasses.get(undefined, name),
  reserved: new Set(
    [...work.assumed.values()].flatMap(({ volumes }) =>
      (volumes?.bindings ?? []).map(({ volume }) => volume.metadata?.name ?? ''),
    ),
  ),
});

const forget = (work: Scheduling, { node, pod }: Assumed) => {
  removePlacement(work, node, pod);
  work.assumed.delete(pod.metadata?.uid ?? '');
};

const bind = async (work: Scheduling, { pod, node }: Assumed) => {
  const { name = '', namespace = '', uid = '' } = pod.metadata ?? {};
  await work.client.request(
    'POST',
    pathOf(RESOURCES.pods, namespace, name, 'binding'),
    {
      apiVersion: 'v1',
      kind: 'Binding',
      metadata: { name, namespace, uid },
      target: { apiVersion: 'v1', kind: 'Node', name: node },
    },
    { signal: work.signal },
  );
  const message = `Successfully assigned ${namespace}/${name} to ${node}`;
  work.events.event(pod, 'Normal', 'Scheduled', message, RESOURCES.pods);
};

/** Reserves volumes for the pod's claims, and requests the provisioning of missing ones. */
const beginBinding = async (work: Scheduling, volumes: NodeVolumes, node: string) => {
  await all([
    ...volumes.bindings.map(({ claim, volume }) => work.persistentVolumes.update(boundVolume(volume, claim))),
    ...volumes.provision
      .filter(({ metadata }) => metadata?.annotations?.[SELECTED_NODE] !== node)
      .map((claim) => {
        const { uid, resourceVersion } = claim.metadata ?? {};
        const metadata = { uid, resourceVersion, annotations: { [SELECTED_NODE]: node } };
        return work.persistentVolumeClaims.patch(claim, 'merge', { metadata });
      }),
  ]);
};

/** Binds the pod once its volumes are bound; restarts if one cannot be bound. */
const continueBinding = async (work: Scheduling, key: string, decision: Assumed) => {
  const { namespace = '' } = decision.pod.metadata ?? {};
  const claims = claimsOf(decision.pod).map(({ name }) => work.persistentVolumeClaims.get(namespace, name));
  const isBound = claims.every((claim) => claim && isFullyBound(claim) && claim.status?.phase === 'Bound');
  if (isBound) {
    try {
      await bind(work, decision);
    } catch (error) {
      forget(work, decision);
      throw error;
    }
    return;
  }
  const made = new Set(decision.volumes?.provision.map(({ metadata }) => metadata?.uid));
  const isRejected = claims.some(
    (claim) =>
      !claim ||
      (made.has(claim.metadata?.uid) &&
        !isFullyBound(claim) &&
        claim.metadata?.annotations?.[SELECTED_NODE] !== decision.node),
  );
  if (isRejected || work.clock.now() - decision.since >= BIND_TIMEOUT_MS) {
    forget(work, decision);
    work.queue.add(key);
  }
};

const preempt = async (work: Scheduling, victim: Pod, pod: Pod, node: string) => {
  const message = `Preempted by pod ${pod.metadata?.uid} on node ${node}`;
  work.events.event(victim, 'Normal', 'Preempted', message, RESOURCES.pods);
  const condition = {
    type: 'DisruptionTarget',
    ...observedGeneration(victim),
    status: 'True',
    reason: 'PreemptionByScheduler',
    message: `${SCHEDULER}: preempting to accommodate a higher priority pod`,
    lastTransitionTime: timestamp(work.clock.now()),
  };
  const { uid } = victim.metadata ?? {};
  await work.pods.patch(
    victim,
    'strategic',
    { metadata: { uid }, status: { conditions: [condition] } },
    'status',
  );
  await work.pods.delete(victim);
};

const reportFailure = async (work: Scheduling, pod: Pod, message: string, nominated: string | undefined) => {
  const before = pod.status?.conditions?.find(({ type }) => type === 'PodScheduled');
  const known = pod.status?.nominatedNodeName;
  if (before?.status === 'False' && before.message === message && known === nominated) return;
  work.events.event(pod, 'Warning', 'FailedScheduling', message, RESOURCES.pods);
  const condition = {
    type: 'PodScheduled',
    ...observedGeneration(pod),
    status: 'False',
    lastProbeTime: null,
    reason: 'Unschedulable',
    message,
    lastTransitionTime:
      before?.status === 'False' ? (before.lastTransitionTime ?? null) : timestamp(work.clock.now()),
  };
  const { uid } = pod.metadata ?? {};
  const status = { conditions: [condition], nominatedNodeName: nominated ?? null };
  await work.pods.patch(pod, 'strategic', { metadata: { uid }, status }, 'status');
};

const retryWaiting = (work: Scheduling) => {
  const priority = (key: string) => priorityOf(work.pods.informer.get(key) ?? {});
  for (const key of [...work.waiting].sort((a, b) => priority(b) - priority(a))) work.queue.add(key);
};

const settle = (work: Scheduling, pod: Pod) => {
  const uid = pod.metadata?.uid ?? '';
  const node = pod.spec?.nodeName;
  const decided = work.assumed.get(uid);
  if (node) {
    if (decided && decided.node !== node) removePlacement(work, decided.node, pod);
    work.assumed.delete(uid);
    if (isFinished(pod)) removePlacement(work, node, pod);
    else place(work, node, pod);
  } else if (!decided && !work.waiting.has(keyOf(pod)) && isOurs(work, pod)) work.queue.add(keyOf(pod));
};

const unresolvable = (count: number, problem: string) =>
  `0/${count} nodes are available: ${problem}. preemption: 0/${count} nodes are available: ${count} Preemption is not helpful for scheduling.`;

/** Returns why no pod of lower priority is preempted (upstream's words). */
function preemptionMessage(pod: Pod, loads: readonly NodeLoad[], refuse: NodeRefusal): string {
  if (pod.spec?.preemptionPolicy === 'Never')
    return 'preemption: not eligible due to preemptionPolicy=Never.';
  const reasons = new Map<string, number>();
  for (const load of loads) {
    const isHopeless = nodeRefusal(pod, load.node) !== null || refuse(load) !== null;
    const reason = isHopeless
      ? 'Preemption is not helpful for scheduling'
      : 'No preemption victims found for incoming pod';
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  return `preemption: ${failureMessage(loads.length, reasons)}`;
}
