import type { ProcessIdentity } from '../kernel/process-identity.ts';
import type { Container } from '../kube/types.ts';
import type { ContainerRecord } from './container-folder.ts';
import type { ProcessUser } from './image-user.ts';
import { type ContainerState, NEW_CONTAINER } from './lifecycle.ts';

/** The current run of a container; the latest one if it has ended. */
export interface CurrentRun {
  /** Its name in the runtime. */
  readonly id: string;
  /** Its first process. */
  readonly process: ProcessIdentity | null;
  /** The image in the container's definition, and the image's exact identity. */
  readonly image: string;
  readonly imageId: string;
  /** Null before its first start. */
  readonly user: ProcessUser | null;
  /** The resources in effect. */
  readonly resources: Container['resources'];
  readonly stopSignal: NodeJS.Signals;
}

export const NO_RUN: CurrentRun = {
  ...{ id: '', process: null, image: '', imageId: '', user: null, resources: undefined },
  stopSignal: 'SIGTERM',
};

/** Returns the record of a run. `begun`: the program was started; before that, its process, created at `createdAt`, waits for the runtime. */
export function recordOf(
  run: CurrentRun,
  { phase, attempt, last }: ContainerState,
  { begun, createdAt = null }: { readonly begun: boolean; readonly createdAt?: string | null },
): ContainerRecord {
  const ended = phase.kind === 'ended' ? phase.termination : null;
  const startedAt = phase.kind === 'running' ? phase.startedAt : ended ? ended.startedAt : createdAt;
  return { ...run, attempt, begun, startedAt, last, ended };
}

/** Returns the state in a record, in which the run has not yet been found to run. */
export function recordedState({ attempt, last, ended }: ContainerRecord): ContainerState {
  const state: ContainerState = { ...NEW_CONTAINER, attempt, last };
  return ended ? { ...state, phase: { kind: 'ended', termination: ended } } : state;
}
