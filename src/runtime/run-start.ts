import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { timestamp } from '../kube/timestamp.ts';
import { containerConfig, type Launch } from './container-config.ts';
import { startContainer } from './oci-runtime.ts';
import type { ProcessIdentity } from './process-identity.ts';
import type { Image } from './rootfs.ts';
import type { WorkerContext } from './worker-context.ts';

export interface RunPlaces {
  /** The runtime's name of the run. */
  readonly id: string;
  readonly bundle: string;
  readonly log: string;
}

export interface StartedRun {
  /** Its first process. */
  readonly process: ProcessIdentity;
  readonly startedAt: string;
}

/**
 * Describes a run of a container to the OCI runtime and starts it, when it is its turn. `created`: its process is there
 * and waits for the runtime's word. Throws FairleadError.
 */
export async function startRun(
  { options, paths, groups, starts }: WorkerContext,
  launch: Launch,
  image: Image,
  { id, bundle, log }: RunPlaces,
  created: (run: StartedRun) => void,
): Promise<StartedRun> {
  const { container, pod } = launch;
  const config = containerConfig(launch, await launch.environment(), image, {
    bundle,
    cgroupsPath: `${options.cgroupParent}/pod${pod.metadata?.uid ?? ''}/${id}`,
    cgroupControllers: groups?.controllers ?? new Set(),
  });
  writeFileSync(join(bundle, 'config.json'), JSON.stringify(config), { mode: 0o600 });
  const startedAt = timestamp(options.clock.now());
  const streams = {
    stdin: container.stdin === true,
    stdinOnce: container.stdinOnce === true,
    tty: container.tty === true,
  };
  const process = await starts.run(() =>
    startContainer(paths, { id, bundle, log, ...streams }, (one) => created({ process: one, startedAt })),
  );
  return { process, startedAt };
}
