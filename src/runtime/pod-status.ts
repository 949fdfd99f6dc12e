import { observedGeneration } from '../kube/observed-generation.ts';
import { parseQuantity } from '../kube/quantity.ts';
import type { Container, ContainerStatus, Pod, PodCondition } from '../kube/types.ts';
import { utf8Start } from '../lib/utf8.ts';
import { changedResources } from './container-resources.ts';
import type { ProcessUser } from './image-user.ts';
import {
  type ContainerPhase,
  type ContainerState,
  isPodOver,
  NEW_CONTAINER,
  restartRules,
  type Termination,
  wantsRestart,
} from './lifecycle.ts';
import { ephemeralOf, isSidecar } from './pod-containers.ts';

type PodStatus = NonNullable<Pod['status']>;

export interface ContainerView extends Pick<ContainerState, 'phase' | 'isReplaced'> {
  readonly restarts: number;
  /** The previous run. */
  readonly last: Termination | null;
  /** The startup probe has passed, or none is defined. */
  readonly started: boolean;
  /** The readiness probe passes, or none is defined. */
  readonly ready: boolean;
  /** The image's exact identity; empty for built-in images. */
  readonly imageId: string;
  /** The user of its processes; null before its first start. */
  readonly user: ProcessUser | null;
  /** The resources in effect; undefined before its first start, or without any. */
  readonly resources: Container['resources'];
}

export interface PodView {
  readonly pod: Pod;
  readonly containers: ReadonlyMap<string, ContainerView>;
  readonly ips: readonly string[];
  readonly hostIps: readonly string[];
  readonly sandboxReady: boolean;
  /** The container is being stopped. */
  readonly isTerminating: boolean;
  /** The node's resources for pods. */
  readonly allocatable: Readonly<Record<string, string>>;
  readonly startTime: string;
  /** The whole pod has failed for this reason ("Evicted", "UnsupportedField"). */
  readonly failure: { readonly reason: string; readonly message: string } | null;
  /** Why the pod's containers cannot be created yet; empty: nothing is wrong. Upstream's kubelet has it in events only. */
  readonly trouble?: string;
  /** RFC 3339, to the second. */
  readonly now: string;
}

const neverRan = (view: ContainerView | undefined) =>
  view === undefined || (view.phase.kind === 'waiting' && view.last === null);

/** Returns a pod's status. Unchanged conditions keep their transition times. */
export function podStatus(view: PodView): PodStatus {
  const { pod } = view;
  const spec = pod.spec;
  const main = spec?.containers ?? [];
  const init = spec?.initContainers ?? [];
  const phase = podPhase(view);
  const ended = phase === 'Succeeded' || phase === 'Failed';
  const initialized = isInitialized(pod, view.containers);
  const unready = [...init.filter(isSidecar), ...main]
    .filter((container) => !isReady(view.containers.get(container.name)))
    .map((container) => container.name);
  const gates = spec?.readinessGates ?? [];
  const given = pod.status?.conditions ?? [];
  const closed = gates.filter(
    (gate) => given.find((one) => one.type === gate.conditionType)?.status !== 'True',
  );
  const containersReady = !ended && unready.length === 0;
  const why = ended
    ? { reason: phase === 'Succeeded' ? 'PodCompleted' : 'PodFailed', message: '' }
    : { reason: 'ContainersNotReady', message: `containers with unready status: [${unready.join(' ')}]` };
  const incomplete = init
    .filter((container) => !initDone(container, view.containers.get(container.name)))
    .map((one) => one.name);
  const observed = observedGeneration(pod);
  const own = [
    ...resizeConditions(view),
    condition('PodReadyToStartContainers', view.sandboxReady),
    condition('Initialized', initialized, {
      reason: 'ContainersNotInitialized',
      message: `containers with incomplete status: [${incomplete.join(' ')}]`,
    }),
    containersReady && closed.length > 0
      ? condition('Ready', false, {
          reason: 'ReadinessGatesNotReady',
          message: `the status of pod readiness gate ${JSON.stringify(closed[0]?.conditionType)} is not "True"`,
        })
      : condition('Ready', containersReady, why),
    condition('ContainersReady', containersReady, why),
    condition('PodScheduled', true),
  ].map((fresh) => {
    const before = given.find((one) => one.type === fresh.type);
    const same = before && before.status === fresh.status;
    return {
      ...fresh,
      ...observed,
      lastProbeTime: null,
      lastTransitionTime: (same && before.lastTransitionTime) || view.now,
    } as unknown as PodCondition;
  });
  const others = given.filter(
    (one) => !own.some((fresh) => fresh.type === one.type) && !RESIZE_CONDITIONS.has(one.type),
  );
  // A rejected pod has no container statuses, as in upstream's kubelet: users see the reason instead.
  const refused =
    view.failure !== null && [...main, ...init].every(({ name }) => neverRan(view.containers.get(name)));
  const [podIP] = view.ips;
  const [hostIP] = view.hostIps;
  return {
    phase,
    ...observed,
    conditions: [...own, ...others],
    ...(view.failure ? { reason: view.failure.reason, message: view.failure.message } : {}),
    ...(hostIP ? { hostIP, hostIPs: view.hostIps.map((ip) => ({ ip })) } : {}),
    ...(podIP ? { podIP, podIPs: view.ips.map((ip) => ({ ip })) } : {}),
    startTime: view.startTime,
    ...(init.length > 0 && !refused
      ? {
          initContainerStatuses: init.map((container) => containerStatus(view, container, true, initialized)),
        }
      : {}),
    ...(refused
      ? {}
      : {
          containerStatuses: main.map((container) => containerStatus(view, container, false, initialized)),
        }),
    ...ephemeralStatuses(view, initialized),
    qosClass: pod.status?.qosClass ?? 'BestEffort',
  } as PodStatus;
}

const RESIZE_CONDITIONS: ReadonlySet<string> = new Set(['PodResizePending', 'PodResizeInProgress']);

/** Builds the condition with the reason why a resize is pending (KEP-1287). */
function resizeConditions({ pod, containers, allocatable }: PodView) {
  const pending = (pod.spec?.containers ?? []).filter((container) => {
    const view = containers.get(container.name);
    return view?.phase.kind === 'running' && changedResources(view.resources, container.resources).length > 0;
  });
  if (pending.length === 0) return [];
  const excess = exceededResource(pod, allocatable);
  return excess
    ? [
        {
          type: 'PodResizePending',
          status: 'True',
          reason: 'Infeasible',
          message: `Node didn't have enough capacity: ${excess}`,
        },
      ]
    : [{ type: 'PodResizeInProgress', status: 'True' }];
}

/** Returns the resource that exceeds the node's capacity; null: the pod fits. */
function exceededResource(pod: Pod, allocatable: Readonly<Record<string, string>>): string | null {
  for (const name of ['cpu', 'memory']) {
    const requests = (pod.spec?.containers ?? []).map(({ resources }) =>
      parseQuantity(String(resources?.requests?.[name] ?? resources?.limits?.[name] ?? '0')),
    );
    const capacity = parseQuantity(allocatable[name] ?? '');
    const sum = requests.reduce((total, one) => total + one, 0);
    if (Number.isFinite(capacity) && sum > capacity) {
      return `${name}, requested: ${sum}, capacity: ${capacity}`;
    }
  }
  return null;
}

function ephemeralStatuses(pod: PodView, initialized: boolean): object {
  const { ephemeralContainers = [] } = (pod.pod.spec ?? {}) as { ephemeralContainers?: Container[] };
  if (ephemeralContainers.length === 0) return {};
  return {
    ephemeralContainerStatuses: ephemeralContainers.map((container) => ({
      ...containerStatus(pod, container, false, initialized),
      ready: false,
    })),
  };
}

function podPhase(view: PodView): 'Pending' | 'Running' | 'Succeeded' | 'Failed' {
  if (view.failure) return 'Failed';
  const spec = view.pod.spec;
  for (const container of (spec?.initContainers ?? []).filter((one) => !isSidecar(one))) {
    const phase = view.containers.get(container.name)?.phase;
    const hasFailed = phase?.kind === 'ended' && phase.termination.exitCode !== 0;
    if (hasFailed && !wantsRestart(restartRules(view.pod, container), phase.termination.exitCode))
      return 'Failed';
  }
  if (!isInitialized(view.pod, view.containers)) return 'Pending';
  const phases = (spec?.containers ?? []).map((container) => view.containers.get(container.name));
  const { isTerminating } = view;
  const stateOf = (container: Container) =>
    view.containers.get(container.name) ?? { phase: NEW_CONTAINER.phase, isReplaced: false };
  const over = isTerminating
    ? phases.every((one) => one?.phase.kind === 'ended')
    : isPodOver(view.pod, stateOf);
  if (over) {
    const good = phases.every((one) => one?.phase.kind === 'ended' && one.phase.termination.exitCode === 0);
    return good ? 'Succeeded' : 'Failed';
  }
  const begun = phases.every((one) => one && (one.phase.kind !== 'waiting' || one.restarts > 0 || one.last));
  return begun ? 'Running' : 'Pending';
}

/** Reports whether the next container may start: this init container has succeeded or, if a sidecar, started. */
export function initDone(container: Container, view: ContainerView | undefined): boolean {
  if (!view) return false;
  if (isSidecar(container)) return view.started && (view.phase.kind === 'running' || view.restarts > 0);
  return view.phase.kind === 'ended' && view.phase.termination.exitCode === 0;
}

/** Reports whether all init containers are done, or were once: then the others have been started. */
export function isInitialized(pod: Pod, containers: ReadonlyMap<string, ContainerView>): boolean {
  const begun = (pod.spec?.containers ?? []).some(({ name }) => {
    const view = containers.get(name);
    return view !== undefined && (view.phase.kind !== 'waiting' || view.last !== null);
  });
  return begun || (pod.spec?.initContainers ?? []).every((one) => initDone(one, containers.get(one.name)));
}

function isReady(view: ContainerView | undefined): boolean {
  return view?.phase.kind === 'running' && view.started && view.ready;
}

/** The bytes of all termination messages of a pod (upstream's MaxPodTerminationMessageLogLength). */
const MAX_MESSAGE_BYTES = 12 * 1024;

/** Returns a container's share in the bytes of the pod's termination messages, as upstream's status manager. */
function messageShare({ pod }: PodView): number {
  const { initContainers = [], containers = [] } = pod.spec ?? {};
  const count = initContainers.length + containers.length + ephemeralOf(pod).length;
  return Math.floor(MAX_MESSAGE_BYTES / Math.max(1, count));
}

function containerStatus(
  pod: PodView,
  container: Container,
  init: boolean,
  initialized: boolean,
): ContainerStatus {
  const view = pod.containers.get(container.name);
  const maxMessage = messageShare(pod);
  const given = view?.phase ?? { kind: 'waiting', reason: 'ContainerCreating', message: '' };
  const phase: ContainerPhase =
    given.kind === 'waiting' && given.reason === 'ContainerCreating'
      ? {
          kind: 'waiting',
          reason: initialized ? given.reason : 'PodInitializing',
          message: (initialized && given.message) || utf8Start(pod.trouble ?? '', maxMessage),
        }
      : given;
  const running = phase.kind === 'running';
  const id = phase.kind === 'running' ? phase.id : phase.kind === 'ended' ? phase.termination.id : '';
  const done = init && !isSidecar(container) && phase.kind === 'ended' && phase.termination.exitCode === 0;
  return {
    name: container.name,
    state: stateOf(phase, maxMessage),
    lastState: view?.last ? stateOf({ kind: 'ended', termination: view.last }, maxMessage) : {},
    ready: done || isReady(view),
    restartCount: view?.restarts ?? 0,
    image: container.image ?? '',
    imageID: view?.imageId ?? '',
    ...(id ? { containerID: `crun://${id}` } : {}),
    started: running && (view?.started ?? false),
    ...(view?.resources && running
      ? {
          resources: view.resources,
          ...(view.resources.requests ? { allocatedResources: view.resources.requests } : {}),
        }
      : {}),
    ...(view?.user
      ? {
          user: {
            linux: {
              uid: view.user.uid,
              gid: view.user.gid,
              supplementalGroups: [...new Set([view.user.gid, ...view.user.groups])],
            },
          },
        }
      : {}),
    ...(container.volumeMounts && container.volumeMounts.length > 0
      ? { volumeMounts: container.volumeMounts.map(mountStatus) }
      : {}),
  } as ContainerStatus;
}

function mountStatus({ name, mountPath, readOnly, recursiveReadOnly }: VolumeMount) {
  if (!readOnly) return { name, mountPath };
  const recursive = recursiveReadOnly === 'Enabled' || recursiveReadOnly === 'IfPossible';
  return { name, mountPath, readOnly, recursiveReadOnly: recursive ? 'Enabled' : 'Disabled' };
}

type VolumeMount = NonNullable<Container['volumeMounts']>[number];

function stateOf(phase: ContainerPhase, maxMessage: number) {
  switch (phase.kind) {
    case 'waiting':
      return { waiting: { reason: phase.reason, ...(phase.message ? { message: phase.message } : {}) } };
    case 'running':
      return { running: { startedAt: phase.startedAt } };
    case 'ended': {
      const { exitCode, reason, message, startedAt, finishedAt, id } = phase.termination;
      return {
        terminated: {
          exitCode,
          reason,
          ...(message ? { message: utf8Start(message, maxMessage) } : {}),
          ...(startedAt ? { startedAt } : {}),
          finishedAt,
          containerID: `crun://${id}`,
        },
      };
    }
  }
}

function condition(type: string, value: boolean, otherwise?: { reason: string; message: string }) {
  return value || !otherwise
    ? { type, status: value ? 'True' : 'False' }
    : {
        type,
        status: 'False',
        reason: otherwise.reason,
        ...(otherwise.message ? { message: otherwise.message } : {}),
      };
}
