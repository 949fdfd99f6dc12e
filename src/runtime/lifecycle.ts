import type { Container, Pod } from '../kube/types.ts';
import { ephemeralOf, isSidecar } from './pod-containers.ts';

// The states of a container and of a pod, and their transitions. ContainerRunner and PodWorker execute the decisions
// of this file, which does no I/O.
//
//   container   waiting ──started──▶ running ──exited──▶ ended ──restarted──▶ waiting
//               waiting ──refused──▶ waiting             ended  (for good, by its restart policy)
//   pod         POD_RULES, below: the first matching rule names the next step.

/** An ended run of a container. */
export interface Termination {
  readonly id: string;
  readonly exitCode: number;
  readonly reason: string;
  readonly message: string;
  readonly startedAt: string | null;
  readonly finishedAt: string;
}

export type ContainerPhase =
  | { readonly kind: 'waiting'; readonly reason: string; readonly message: string }
  | { readonly kind: 'running'; readonly id: string; readonly startedAt: string }
  | { readonly kind: 'ended'; readonly termination: Termination };

export interface ContainerState {
  readonly phase: ContainerPhase;
  /** The number of the current run, or of the next one while waiting; the first is 0. */
  readonly attempt: number;
  /** The previous run. */
  readonly last: Termination | null;
  /** The run is being stopped because the container's definition has changed: it restarts regardless of its policy. */
  readonly isReplaced: boolean;
}

export const NEW_CONTAINER: ContainerState = {
  phase: { kind: 'waiting', reason: 'ContainerCreating', message: '' },
  attempt: 0,
  last: null,
  isReplaced: false,
};

export type ContainerEvent =
  /** The container cannot be started now; `reason` as in a status. */
  | { readonly type: 'refused'; readonly reason: string; readonly message: string }
  | { readonly type: 'started'; readonly id: string; readonly startedAt: string }
  /** Its definition has changed; the run is being stopped. */
  | { readonly type: 'replaced' }
  | { readonly type: 'exited'; readonly exitCode: number; readonly message: string; readonly at: string }
  /** The next run is planned; `backOff` describes its delay, or is empty. */
  | { readonly type: 'restarted'; readonly backOff: string };

/** Returns the state after an event. Irrelevant events do not change the state. */
export function nextContainerState(state: ContainerState, event: ContainerEvent): ContainerState {
  const { phase } = state;
  switch (event.type) {
    case 'refused':
      if (phase.kind !== 'waiting') return state;
      return { ...state, phase: { kind: 'waiting', reason: event.reason, message: event.message } };
    case 'started':
      if (phase.kind !== 'waiting') return state;
      return { ...state, phase: { kind: 'running', id: event.id, startedAt: event.startedAt } };
    case 'replaced':
      return phase.kind === 'running' ? { ...state, isReplaced: true } : state;
    case 'exited': {
      if (phase.kind !== 'running') return state;
      const { exitCode, message, at } = event;
      const reason = exitCode === 0 ? 'Completed' : 'Error';
      const { id, startedAt } = phase;
      return {
        ...state,
        phase: { kind: 'ended', termination: { id, exitCode, reason, message, startedAt, finishedAt: at } },
      };
    }
    case 'restarted':
      if (phase.kind !== 'ended') return state;
      return {
        phase: {
          kind: 'waiting',
          reason: event.backOff === '' ? 'ContainerCreating' : 'CrashLoopBackOff',
          message: event.backOff,
        },
        attempt: state.attempt + 1,
        last: phase.termination,
        isReplaced: false,
      };
  }
}

/** Returns the number of executed restarts, without a planned one. */
export function restartCount({ phase, attempt, last }: ContainerState): number {
  return phase.kind === 'waiting' && last ? attempt - 1 : attempt;
}

export type ContainerStep = 'start' | 'replace' | 'restart' | 'none';

/** Returns a container's next step; back-off may delay a start. */
export function containerStep(
  state: ContainerState,
  restarts: RestartRules,
  hasChanged: boolean,
): ContainerStep {
  switch (state.phase.kind) {
    case 'waiting':
      return 'start';
    case 'running':
      return hasChanged && !state.isReplaced ? 'replace' : 'none';
    case 'ended':
      return state.isReplaced || wantsRestart(restarts, state.phase.termination.exitCode)
        ? 'restart'
        : 'none';
  }
}

/** Rules that determine when an ended container is restarted. */
export interface RestartRules {
  readonly policy: string;
  /** The first matching rule takes precedence over the policy (KEP-5307). */
  readonly rules: readonly RestartRule[];
}

export interface RestartRule {
  readonly action?: string;
  readonly exitCodes?: { readonly operator?: string; readonly values?: readonly number[] };
}

export function wantsRestart({ policy, rules }: RestartRules, exitCode: number): boolean {
  for (const { action, exitCodes } of rules) {
    const isListed = exitCodes?.values?.includes(exitCode) ?? false;
    if (action === 'Restart' && (exitCodes?.operator === 'NotIn' ? !isListed : isListed)) return true;
  }
  return policy === 'Always' || (policy === 'OnFailure' && exitCode !== 0);
}

/** Returns the rules for restarts of a container: its own rules and policy, or the pod's. */
export function restartRules(pod: Pod, container: Container): RestartRules {
  const { restartPolicy: own, restartPolicyRules: rules = [] } = container as {
    restartPolicy?: string;
    restartPolicyRules?: readonly RestartRule[];
  };
  const shared = pod.spec?.restartPolicy ?? 'Always';
  const { initContainers = [] } = pod.spec ?? {};
  if (ephemeralOf(pod).some(({ name }) => name === container.name)) return { policy: 'Never', rules: [] };
  const isInit = initContainers.some(({ name }) => name === container.name);
  // An init container that has succeeded is done, even in a pod that restarts the others always.
  const inherited = isInit && shared === 'Always' ? 'OnFailure' : shared;
  return { policy: own ?? inherited, rules };
}

/**
 * Reports whether all containers have ended and none will be restarted, or an init container has failed permanently.
 */
export function isPodOver(
  pod: Pod,
  stateOf: (container: Container) => Pick<ContainerState, 'phase' | 'isReplaced'>,
): boolean {
  const isDone = (container: Container): boolean => {
    const { phase, isReplaced } = stateOf(container);
    if (phase.kind !== 'ended' || isReplaced) return false;
    return !wantsRestart(restartRules(pod, container), phase.termination.exitCode);
  };
  const { initContainers = [], containers = [] } = pod.spec ?? {};
  const hasFailed = (container: Container): boolean => {
    const { phase } = stateOf(container);
    return (
      !isSidecar(container) && isDone(container) && phase.kind === 'ended' && phase.termination.exitCode !== 0
    );
  };
  return initContainers.some(hasFailed) || containers.every(isDone);
}

/** The facts that determine a pod's next step. */
export interface PodFacts {
  /** Its object is gone or is being deleted. */
  readonly isLeaving: boolean;
  /** It has failed as a whole, or its object is in a final phase and none of its processes run. */
  readonly isFinished: boolean;
  /** It requires features that this node does not support. */
  readonly isRefused: boolean;
  /** The node has reserved its resources. */
  readonly isAdmitted: boolean;
  /** Its deadline has passed, or it exceeds its limits. */
  readonly mustFail: boolean;
  /** All its containers have ended permanently. */
  readonly isOver: boolean;
  readonly hasSandbox: boolean;
  /** The process that holds its namespaces is running. */
  readonly isSandboxAlive: boolean;
  readonly hasAddresses: boolean;
  /** Volumes, hosts and resolv.conf. */
  readonly hasFiles: boolean;
}

export type PodStep =
  | 'terminate'
  | 'rest'
  | 'refuse'
  | 'admit'
  | 'fail'
  | 'retire'
  | 'create-sandbox'
  | 'attach-network'
  | 'prepare-files'
  | 'run-containers';

/** The first matching rule determines the pod's next step. */
const POD_RULES: readonly (readonly [holds: (pod: PodFacts) => boolean, step: PodStep])[] = [
  [(pod) => pod.isLeaving, 'terminate'],
  [(pod) => pod.isFinished, 'rest'],
  [(pod) => !pod.hasSandbox && pod.isOver, 'rest'],
  [(pod) => pod.mustFail, 'fail'],
  [(pod) => pod.isOver, 'retire'],
  [(pod) => pod.isRefused && !pod.hasSandbox, 'refuse'],
  [(pod) => !pod.isAdmitted, 'admit'],
  [(pod) => !pod.isSandboxAlive, 'create-sandbox'],
  [(pod) => !pod.hasAddresses, 'attach-network'],
  [(pod) => !pod.hasFiles, 'prepare-files'],
  [() => true, 'run-containers'],
];

export function nextPodStep(pod: PodFacts): PodStep {
  return POD_RULES.find(([holds]) => holds(pod))?.[1] ?? 'rest';
}

/** Steps that are followed immediately by the next one; after the others, the pod waits for an event. */
export const STEPS_TO_GO_ON: ReadonlySet<PodStep> = new Set([
  'admit',
  'create-sandbox',
  'attach-network',
  'prepare-files',
]);
