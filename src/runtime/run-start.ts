import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProcessIdentity } from '../kernel/process-identity.ts';
import { timestamp } from '../kube/timestamp.ts';
import type { Container } from '../kube/types.ts';
import { containerConfig, type Launch } from './container-config.ts';
import type { ProcessUser } from './image-user.ts';
import { startContainer } from './oci-runtime.ts';
import { pinFiles } from './pinned-files.ts';
import type { PodProcessesOptions } from './pod-processes-options.ts';
import type { Image } from './rootfs.ts';

export interface RunPlaces {
  /** The run's name in the runtime. */
  readonly id: string;
  readonly bundle: string;
  readonly log: string;
}

export interface StartedRun {
  /** Its first process. */
  readonly process: ProcessIdentity;
  readonly startedAt: string;
  readonly user: ProcessUser;
}

/** Returns the control group of a run, below the root of the hierarchy. */
export const runGroup = (cgroupParent: string, podUid: string, id: string): string =>
  `${cgroupParent}/pod${podUid}/${id}`;

/** Reports whether a container is kept from the machine's devices. */
export const isConfined = (container: Container): boolean => container.securityContext?.privileged !== true;

/**
 * Describes a run of a container to the OCI runtime and starts it, limited by the semaphore. `created` is called when
 * its process exists and waits for the runtime to start it. Throws FairleadError.
 */
export async function startRun(
  { options, paths, groups, boundingSet, devices, starts }: PodProcessesOptions,
  launch: Launch,
  image: Image,
  { id, bundle, log }: RunPlaces,
  created: (run: StartedRun) => void,
): Promise<StartedRun> {
  const { container, pod } = launch;
  const pinned = pinFiles(bundle);
  try {
    const cgroupsPath = groups === null ? null : runGroup(options.cgroupParent, pod.metadata?.uid ?? '', id);
    const { config, user } = containerConfig(launch, await launch.environment(), image, {
      bundle,
      cgroupsPath,
      cgroupControllers: groups?.controllers ?? new Set(),
      ...{ boundingSet, confinesDevices: devices !== null },
      seccompFolder: join(options.stateDir, 'seccomp'),
      pin: pinned.pin,
    });
    writeFileSync(join(bundle, 'config.json'), JSON.stringify(config), { mode: 0o600 });
    const startedAt = timestamp(options.clock.now());
    const streams = {
      stdin: container.stdin === true,
      stdinOnce: container.stdinOnce === true,
      tty: container.tty === true,
    };
    const process = await starts.run(() =>
      startContainer(paths, { id, bundle, log, ...streams }, (one) => {
        if (cgroupsPath !== null && isConfined(container)) devices?.confine(cgroupsPath);
        created({ process: one, startedAt, user });
      }),
    );
    return { process, startedAt, user };
  } finally {
    pinned.release();
  }
}
