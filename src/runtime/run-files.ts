import type { Pod } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { ContainerFolder } from './container-folder.ts';
import type { ContainerState } from './lifecycle.ts';
import type { PodProcesses } from './pod-processes.ts';

/** Returns the runtime's name of a run of a container. */
export function runId(pod: Pod, container: string, attempt: number): string {
  return `${(pod.metadata?.uid ?? '').slice(0, 13)}-${container}-${attempt}`;
}

/** Removes the runs up to attempt `last` of a pod's container from the runtime and the disk; their logs stay. */
export async function removeRuns(
  processes: Pick<PodProcesses, 'removeRun'>,
  folder: ContainerFolder,
  pod: Pod,
  container: string,
  last: number,
): Promise<void> {
  for (const { attempt, bundle } of folder.bundles()) {
    if (attempt > last) continue;
    await processes.removeRun({ id: runId(pod, container, attempt), bundle }, pod.metadata?.uid ?? '');
  }
}

/**
 * Returns the attempt whose log is that of the current or of the previous run; while a restart is pending, the current
 * run is the ended one. Throws FairleadError "BadRequest" if there is none.
 */
export function attemptOfLog(
  { attempt, phase, last }: ContainerState,
  previous: boolean,
  subject: { readonly container: string; readonly pod: string | undefined },
): number {
  const name = `container ${JSON.stringify(subject.container)} in pod ${JSON.stringify(subject.pod)}`;
  const problem = (message: string) => new FairleadError(message, { op: 'read log', code: 'BadRequest' });
  if (previous) {
    if (!last) throw problem(`previous terminated ${name} not found`);
    return attempt - 1;
  }
  if (phase.kind !== 'waiting') return attempt;
  if (last) return attempt - 1;
  throw problem(`${name} is waiting to start: ${phase.reason}`);
}
