import { pathOf } from '../kube/client.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Pod, RESOURCES } from '../kube/types.ts';
import { type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import { failureMessage, type NodeLoad, selectNode } from './node-selection.ts';
import { isFinished } from './pods.ts';
import { findPreemption, priorityOf } from './preemption.ts';

const SCHEDULER = 'default-scheduler';

/** Puts pods on nodes as soon as they appear; those that fit nowhere wait for a node or a place. */
export function startScheduler(context: ControllerContext): void {
  const { client, caches, clock, random, signal } = context;
  const { pods, nodes } = caches;
  const events = recorderFor(context, SCHEDULER);
  /** Pods on their way: decided, but not yet seen bound. They count for the decisions that follow. */
  const assumed = new Map<string, { pod: Pod; node: string }>();
  const waiting = new Set<string>();
  /** Pods by node; kept along, because each decision reads all of it. */
  const placed = new Map<string, Map<string, Pod>>();

  const place = (node: string, pod: Pod) => {
    const here = placed.get(node);
    if (here) here.set(pod.metadata?.uid ?? '', pod);
    else placed.set(node, new Map([[pod.metadata?.uid ?? '', pod]]));
  };
  const unplace = (node: string | undefined, pod: Pod) => {
    if (node !== undefined) placed.get(node)?.delete(pod.metadata?.uid ?? '');
  };
  const isOurs = (pod: Pod) =>
    !pod.spec?.nodeName &&
    (pod.spec?.schedulerName ?? SCHEDULER) === SCHEDULER &&
    (pod.spec?.schedulingGates ?? []).length === 0 &&
    !pods.isDeleting(pod) &&
    !isFinished(pod);

  const queue = controllerQueue(context, 'scheduler', async (key) => {
    const pod = pods.informer.get(key);
    waiting.delete(key);
    if (!pod || !isOurs(pod)) return;
    const { name = '', namespace = '', uid = '' } = pod.metadata ?? {};
    if (assumed.has(uid)) return;
    const loads: NodeLoad[] = nodes.informer
      .list()
      .filter(({ metadata }) => metadata?.deletionTimestamp === undefined)
      .map((node) => ({ node, pods: [...(placed.get(node.metadata?.name ?? '')?.values() ?? [])] }));
    // From here to the note of the decision nothing is awaited: decisions never overlap.
    const selection = selectNode(pod, loads, random);
    if (selection.node === null) {
      waiting.add(key);
      const preemption = findPreemption(pod, loads);
      await reportFailure(pod, failureMessage(loads.length, selection.reasons), preemption?.node);
      for (const victim of preemption?.victims ?? []) await preempt(victim, pod, preemption?.node ?? '');
      return;
    }
    const { node } = selection;
    assumed.set(uid, { pod, node });
    place(node, pod);
    try {
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
    } catch (error) {
      unplace(node, pod);
      assumed.delete(uid);
      throw error;
    }
  });
  /** The victim's place is taken by whoever asks first; those who wait ask in the order of their priority. */
  const preempt = async (victim: Pod, pod: Pod, node: string) => {
    const message = `Preempted by pod ${pod.metadata?.uid} on node ${node}`;
    events.event(victim, 'Normal', 'Preempted', message, RESOURCES.pods);
    await pods.delete(victim);
  };
  const reportFailure = async (pod: Pod, message: string, nominated: string | undefined) => {
    const before = pod.status?.conditions?.find(({ type }) => type === 'PodScheduled');
    const known = pod.status?.nominatedNodeName;
    if (before?.status === 'False' && before.message === message && known === nominated) return;
    events.event(pod, 'Warning', 'FailedScheduling', message, RESOURCES.pods);
    const condition = {
      type: 'PodScheduled',
      status: 'False',
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
      if (decided && decided.node !== node) unplace(decided.node, pod);
      assumed.delete(uid);
      if (isFinished(pod)) unplace(node, pod);
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
      // Room, or a pod that others want to be near.
      if (isFinished(pod) !== isFinished(before) || !pod.spec?.nodeName !== !before.spec?.nodeName)
        retryWaiting();
    },
    onDelete(pod) {
      const uid = pod.metadata?.uid ?? '';
      unplace(assumed.get(uid)?.node, pod);
      unplace(pod.spec?.nodeName, pod);
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
}
