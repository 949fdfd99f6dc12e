import type { Container, ContainerStatus, Pod, PodCondition } from '../kube/types.ts';

type PodStatus = NonNullable<Pod['status']>;

/** An ended run of a container. */
export interface Termination {
  readonly id: string;
  readonly exitCode: number;
  readonly reason: string;
  readonly message: string;
  readonly startedAt: string | null;
  readonly finishedAt: string;
}

/** A container as it stands. */
export type ContainerPhase =
  | { readonly kind: 'waiting'; readonly reason: string; readonly message: string }
  | { readonly kind: 'running'; readonly id: string; readonly startedAt: string }
  | { readonly kind: 'ended'; readonly termination: Termination };

export interface ContainerView {
  readonly phase: ContainerPhase;
  readonly restarts: number;
  /** The run before this one. */
  readonly last: Termination | null;
  /** The startup probe has passed (or there is none). */
  readonly started: boolean;
  /** The readiness probe passes (or there is none). */
  readonly ready: boolean;
  /** What exactly its image is; empty where the name says it. */
  readonly imageId: string;
}

export interface PodView {
  readonly pod: Pod;
  readonly containers: ReadonlyMap<string, ContainerView>;
  readonly ips: readonly string[];
  readonly hostIps: readonly string[];
  readonly sandboxReady: boolean;
  readonly startTime: string;
  /** The whole pod has failed for this reason ("Evicted", "UnsupportedField"). */
  readonly failure: { readonly reason: string; readonly message: string } | null;
  /** RFC 3339, to the second. */
  readonly now: string;
}

/** Always-restarting init containers: sidecars (KEP-753). */
export function isSidecar(container: Container): boolean {
  return (container as { restartPolicy?: string }).restartPolicy === 'Always';
}

const neverRan = (view: ContainerView | undefined) =>
  view === undefined || (view.phase.kind === 'waiting' && view.last === null);

/** The status that Kubernetes would report. Conditions keep their transition times where they do not change. */
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
  const own = [
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
      lastProbeTime: null,
      lastTransitionTime: (same && before.lastTransitionTime) || view.now,
    } as unknown as PodCondition;
  });
  const others = given.filter((one) => !own.some((fresh) => fresh.type === one.type));
  // One that is turned away has no containers to tell of, as at upstream's kubelet: people see the reason instead.
  const refused =
    view.failure !== null && [...main, ...init].every(({ name }) => neverRan(view.containers.get(name)));
  const [podIP] = view.ips;
  const [hostIP] = view.hostIps;
  return {
    phase,
    conditions: [...own, ...others],
    ...(view.failure ? { reason: view.failure.reason, message: view.failure.message } : {}),
    ...(hostIP ? { hostIP, hostIPs: view.hostIps.map((ip) => ({ ip })) } : {}),
    ...(podIP ? { podIP, podIPs: view.ips.map((ip) => ({ ip })) } : {}),
    startTime: view.startTime,
    ...(init.length > 0 && !refused
      ? {
          initContainerStatuses: init.map((container) =>
            containerStatus(container, view.containers.get(container.name), true, initialized),
          ),
        }
      : {}),
    ...(refused
      ? {}
      : {
          containerStatuses: main.map((container) =>
            containerStatus(container, view.containers.get(container.name), false, initialized),
          ),
        }),
    ...ephemeralStatuses(view, initialized),
    qosClass: pod.status?.qosClass ?? 'BestEffort',
  } as PodStatus;
}

function ephemeralStatuses({ pod, containers }: PodView, initialized: boolean): object {
  const { ephemeralContainers = [] } = (pod.spec ?? {}) as { ephemeralContainers?: Container[] };
  if (ephemeralContainers.length === 0) return {};
  return {
    ephemeralContainerStatuses: ephemeralContainers.map((container) => ({
      ...containerStatus(container, containers.get(container.name), false, initialized),
      ready: false,
    })),
  };
}

function podPhase(view: PodView): 'Pending' | 'Running' | 'Succeeded' | 'Failed' {
  if (view.failure) return 'Failed';
  const spec = view.pod.spec;
  const policy = spec?.restartPolicy ?? 'Always';
  for (const container of (spec?.initContainers ?? []).filter((one) => !isSidecar(one))) {
    const phase = view.containers.get(container.name)?.phase;
    if (phase?.kind === 'ended' && phase.termination.exitCode !== 0 && policy === 'Never') return 'Failed';
  }
  if (!isInitialized(view.pod, view.containers)) return 'Pending';
  const phases = (spec?.containers ?? []).map((container) => view.containers.get(container.name));
  const over = phases.every((one) => one?.phase.kind === 'ended');
  if (over && (policy !== 'Always' || view.pod.metadata?.deletionTimestamp)) {
    const good = phases.every((one) => one?.phase.kind === 'ended' && one.phase.termination.exitCode === 0);
    if (good) return 'Succeeded';
    if (policy === 'Never' || view.pod.metadata?.deletionTimestamp) return 'Failed';
  }
  const begun = phases.every((one) => one && (one.phase.kind !== 'waiting' || one.restarts > 0 || one.last));
  return begun ? 'Running' : 'Pending';
}

/** An init container lets the next begin: it ended well, or, a sidecar, it has started. */
export function initDone(container: Container, view: ContainerView | undefined): boolean {
  if (!view) return false;
  if (isSidecar(container)) return view.started && (view.phase.kind === 'running' || view.restarts > 0);
  return view.phase.kind === 'ended' && view.phase.termination.exitCode === 0;
}

/** All init containers are done, or were once: the others have begun. */
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

function containerStatus(
  container: Container,
  view: ContainerView | undefined,
  init: boolean,
  initialized: boolean,
): ContainerStatus {
  const given = view?.phase ?? { kind: 'waiting', reason: 'ContainerCreating', message: '' };
  const phase: ContainerPhase =
    given.kind === 'waiting' && given.reason === 'ContainerCreating' && !initialized
      ? { kind: 'waiting', reason: 'PodInitializing', message: '' }
      : given;
  const running = phase.kind === 'running';
  const id = phase.kind === 'running' ? phase.id : phase.kind === 'ended' ? phase.termination.id : '';
  const done = init && !isSidecar(container) && phase.kind === 'ended' && phase.termination.exitCode === 0;
  return {
    name: container.name,
    state: stateOf(phase),
    lastState: view?.last ? stateOf({ kind: 'ended', termination: view.last }) : {},
    ready: done || isReady(view),
    restartCount: view?.restarts ?? 0,
    image: container.image ?? '',
    imageID: view?.imageId ?? '',
    ...(id ? { containerID: `crun://${id}` } : {}),
    started: running && (view?.started ?? false),
  } as ContainerStatus;
}

function stateOf(phase: ContainerPhase) {
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
          ...(message ? { message } : {}),
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
