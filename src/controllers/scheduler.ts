import { pathOf } from '../kube/client.ts';
import { observedGeneration } from '../kube/observed-generation.ts';
import { selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Pod, RESOURCES } from '../kube/types.ts';
import { all, type ControllerContext, controllerQueue, recorderFor } from './context.ts';
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

/** Assigns pods to nodes as soon as they appear; those that fit nowhere wait for a change of nodes or pods. */
export function startScheduler(context: ControllerContext): void {
  const { client, caches, clock, random, signal } = context;
  const { pods, nodes, namespaces, persistentVolumes, persistentVolumeClaims, storageClasses } = caches;
  const events = recorderFor(context, SCHEDULER);
  const assumed = new Map<string, Assumed>();
  const waiting = new Set<string>();
  /** Pods by node; maintained incrementally, because each decision reads all of it. */
  const placed = new Map<string, Map<string, Pod>>();

  const place = (node: string, pod: Pod) => {
    const here = placed.get(node);
    if (here) here.set(pod.metadata?.uid ?? '', pod);
    else placed.set(node, new Map([[pod.metadata?.uid ?? '', pod]]));
  };
  const removePlacement = (node: string | undefined, pod: Pod) => {
    if (node !== undefined) placed.get(node)?.delete(pod.metadata?.uid ?? '');
  };
  const isOurs = (pod: Pod) =>
    !pod.spec?.nodeName &&
    (pod.spec?.schedulerName ?? SCHEDULER) === SCHEDULER &&
    (pod.spec?.schedulingGates ?? []).length === 0 &&
    !pods.isDeleting(pod) &&
    !isFinished(pod);
  const inNamespaces = (pod: Pod) => withNamespaces(pod, () => namespaces.informer.list());

  /** Returns the nodes as seen by the pod: including pods that were nominated there before it. */
  const loadsFor = (pod: Pod): NodeLoad[] => {
    const promised = new Map<string, Pod[]>();
    for (const key of waiting) {
      const other = pods.informer.get(key);
      const node = other?.status?.nominatedNodeName;
      if (!other || !node || other.metadata?.uid === pod.metadata?.uid) continue;
      if (priorityOf(other) < priorityOf(pod)) continue;
      promised.set(node, [...(promised.get(node) ?? []), other]);
    }
    return nodes.informer
      .list()
      .filter(({ metadata }) => metadata?.deletionTimestamp === undefined)
      .map((node) => {
        const name = node.metadata?.name ?? '';
        const here = [...(placed.get(name)?.values() ?? []), ...(promised.get(name) ?? [])];
        return { node, pods: here.map(inNamespaces) };
      });
  };
  const volumeSources = (): VolumeSources => ({
    claim: persistentVolumeClaims.get,
    volume: (name) => persistentVolumes.get(undefined, name),
    volumes: () => persistentVolumes.informer.list(),
    storageClass: (name) => storageClasses.get(undefined, name),
    reserved: new Set(
      [...assumed.values()].flatMap(({ volumes }) =>
        (volumes?.bindings ?? []).map(({ volume }) => volume.metadata?.name ?? ''),
      ),
    ),
  });

  const queue = controllerQueue(context, 'scheduler', async (key) => {
    const found = pods.informer.get(key);
    waiting.delete(key);
    if (!found || !isOurs(found)) return;
    const { uid = '' } = found.metadata ?? {};
    const decided = assumed.get(uid);
    if (decided) {
      if (decided.volumes) await continueBinding(key, decided);
      return;
    }
    const pod = inNamespaces(found);
    const loads = loadsFor(pod);
    // No await from here until the decision is recorded: decisions never overlap.
    const sources = volumeSources();
    const needs = podVolumes(pod, sources);
    const problem = needs.problem ?? exclusiveRefusal(pod, needs, loads);
    if (problem !== null) {
      waiting.add(key);
      await reportFailure(found, unresolvable(loads.length, problem), undefined);
      return;
    }
    const refuse: NodeRefusal = ({ node }) => {
      const result = volumesOn(needs, node, sources);
      return 'refusal' in result ? result.refusal : null;
    };
    const selection = selectNode(pod, loads, random, refuse);
    if (selection.node === null) {
      waiting.add(key);
      const preemption = findPreemption(pod, loads, { isProtected, refuse });
      const message = failureMessage(loads.length, selection.reasons);
      const text = preemption ? message : `${message} ${preemptionMessage(pod, loads, refuse)}`;
      await reportFailure(found, text, preemption?.node);
      const node = preemption?.node ?? '';
      await all((preemption?.victims ?? []).map((victim) => preempt(victim, pod, node)));
      return;
    }
    const { node } = selection;
    const target = loads.find((load) => load.node.metadata?.name === node)?.node;
    const volumes = target && needs.waiting.length > 0 ? volumesOn(needs, target, sources) : null;
    const decision: Assumed = {
      pod: found,
      node,
      volumes: volumes && !('refusal' in volumes) ? volumes : null,
      since: clock.now(),
    };
    assumed.set(uid, decision);
    place(node, found);
    try {
      if (decision.volumes) await beginBinding(decision.volumes, node);
      else await bind(decision);
    } catch (error) {
      forget(decision);
      throw error;
    }
    if (decision.volumes) queue.addAfter(key, BIND_TIMEOUT_MS);
  });
  const forget = ({ node, pod }: Assumed) => {
    removePlacement(node, pod);
    assumed.delete(pod.metadata?.uid ?? '');
  };
  const bind = async ({ pod, node }: Assumed) => {
    const { name = '', namespace = '', uid = '' } = pod.metadata ?? {};
    await client.request(
      'POST',
      pathOf(RESOURCES.pods, namespace, name, 'binding'),
      {
        apiVersion: 'v1',
        kind: 'Binding',
        metadata: { name, namespace, uid },
        target: { apiVersion: 'v1', kind: 'Node', name: node },
      },
      { signal },
    );
    const message = `Successfully assigned ${namespace}/${name} to ${node}`;
    events.event(pod, 'Normal', 'Scheduled', message, RESOURCES.pods);
  };
  /** Reserves volumes for the pod's claims, and requests the provisioning of missing ones. */
  const beginBinding = async (volumes: NodeVolumes, node: string) => {
    await all([
      ...volumes.bindings.map(({ claim, volume }) => persistentVolumes.update(boundVolume(volume, claim))),
      ...volumes.provision
        .filter(({ metadata }) => metadata?.annotations?.[SELECTED_NODE] !== node)
        .map((claim) => {
          const { uid, resourceVersion } = claim.metadata ?? {};
          const metadata = { uid, resourceVersion, annotations: { [SELECTED_NODE]: node } };
          return persistentVolumeClaims.patch(claim, 'merge', { metadata });
        }),
    ]);
  };
  /** Binds the pod once its volumes are bound; restarts if one cannot be bound. */
  const continueBinding = async (key: string, decision: Assumed) => {
    const { namespace = '' } = decision.pod.metadata ?? {};
    const claims = claimsOf(decision.pod).map(({ name }) => persistentVolumeClaims.get(namespace, name));
    const isBound = claims.every((claim) => claim && isFullyBound(claim) && claim.status?.phase === 'Bound');
    if (isBound) {
      try {
        await bind(decision);
      } catch (error) {
        forget(decision);
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
    if (isRejected || clock.now() - decision.since >= BIND_TIMEOUT_MS) {
      forget(decision);
      queue.add(key);
    }
  };

  const isProtected = (pod: Pod) =>
    caches.disruptionBudgets
      .inNamespace(pod.metadata?.namespace ?? '')
      .some(
        ({ spec, status }) =>
          selects(spec?.selector, pod.metadata?.labels) && (status?.disruptionsAllowed ?? 0) <= 0,
      );
  const preempt = async (victim: Pod, pod: Pod, node: string) => {
    const message = `Preempted by pod ${pod.metadata?.uid} on node ${node}`;
    events.event(victim, 'Normal', 'Preempted', message, RESOURCES.pods);
    const condition = {
      type: 'DisruptionTarget',
      ...observedGeneration(victim),
      status: 'True',
      reason: 'PreemptionByScheduler',
      message: `${SCHEDULER}: preempting to accommodate a higher priority pod`,
      lastTransitionTime: timestamp(clock.now()),
    };
    const { uid } = victim.metadata ?? {};
    await pods.patch(
      victim,
      'strategic',
      { metadata: { uid }, status: { conditions: [condition] } },
      'status',
    );
    await pods.delete(victim);
  };
  const reportFailure = async (pod: Pod, message: string, nominated: string | undefined) => {
    const before = pod.status?.conditions?.find(({ type }) => type === 'PodScheduled');
    const known = pod.status?.nominatedNodeName;
    if (before?.status === 'False' && before.message === message && known === nominated) return;
    events.event(pod, 'Warning', 'FailedScheduling', message, RESOURCES.pods);
    const condition = {
      type: 'PodScheduled',
      ...observedGeneration(pod),
      status: 'False',
      lastProbeTime: null,
      reason: 'Unschedulable',
      message,
      lastTransitionTime:
        before?.status === 'False' ? (before.lastTransitionTime ?? null) : timestamp(clock.now()),
    };
    const { uid } = pod.metadata ?? {};
    const status = { conditions: [condition], nominatedNodeName: nominated ?? null };
    await pods.patch(pod, 'strategic', { metadata: { uid }, status }, 'status');
  };
  const retryWaiting = () => {
    const priority = (key: string) => priorityOf(pods.informer.get(key) ?? {});
    for (const key of [...waiting].sort((a, b) => priority(b) - priority(a))) queue.add(key);
  };
  const settle = (pod: Pod) => {
    const uid = pod.metadata?.uid ?? '';
    const node = pod.spec?.nodeName;
    const decided = assumed.get(uid);
    if (node) {
      if (decided && decided.node !== node) removePlacement(decided.node, pod);
      assumed.delete(uid);
      if (isFinished(pod)) removePlacement(node, pod);
      else place(node, pod);
    } else if (!decided && !waiting.has(keyOf(pod)) && isOurs(pod)) queue.add(keyOf(pod));
  };
  pods.informer.handle({
    onAdd: settle,
    onUpdate(pod, before) {
      settle(pod);
      const changed =
        pod.metadata?.generation !== before.metadata?.generation ||
        JSON.stringify(pod.metadata?.labels) !== JSON.stringify(before.metadata?.labels);
      if (changed && waiting.has(keyOf(pod))) queue.add(keyOf(pod));
      // Free resources, or a pod to which others have affinity.
      if (isFinished(pod) !== isFinished(before) || !pod.spec?.nodeName !== !before.spec?.nodeName)
        retryWaiting();
    },
    onDelete(pod) {
      const uid = pod.metadata?.uid ?? '';
      removePlacement(assumed.get(uid)?.node, pod);
      removePlacement(pod.spec?.nodeName, pod);
      assumed.delete(uid);
      waiting.delete(keyOf(pod));
      retryWaiting();
    },
  });
  nodes.informer.handle({
    onAdd: retryWaiting,
    onUpdate(node, before) {
      // Heartbeats change nothing that a pod waits for.
      const relevant = (object: typeof node) =>
        JSON.stringify([
          object.spec,
          object.metadata?.labels,
          object.status?.allocatable,
          object.status?.conditions?.map(({ type, status }) => [type, status]),
        ]);
      if (waiting.size > 0 && relevant(node) !== relevant(before)) retryWaiting();
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
