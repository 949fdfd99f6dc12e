import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { isRunning, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import type { Container, Pod } from '../kube/types.ts';
import type { Launch } from './container-config.ts';
import { containerResources } from './container-resources.ts';
import { removeControlGroup } from './control-groups.ts';
import { kernelHostname } from './name-resolution.ts';
import {
  type CommandResult,
  execInContainer,
  type RunningContainer,
  readExitCode,
  removeContainer,
  updateContainer,
} from './oci-runtime.ts';
import type { PodProcessesOptions } from './pod-processes-options.ts';
import { type Image, removeRootfs } from './rootfs.ts';
import { monitorEnded, monitorOf } from './run-monitor.ts';
import { isConfined, type RunPlaces, runGroup, type StartedRun, startRun } from './run-start.ts';
import {
  adoptSandbox,
  createSandbox,
  pauseError,
  pauseErrors,
  removeSandbox,
  type Sandbox,
} from './sandbox.ts';

/** The processes of pods and their state in the kernel; workers and containers reach them only through this. */
export interface PodProcesses {
  /** Returns the sandbox in a pod's folder, if its pause process is still running. */
  adoptSandbox(folder: string): Sandbox | null;
  createSandbox(folder: string, pod: Pod): Sandbox;
  /** Returns why the pause process in a pod's folder has ended by itself; null: it gave no reason. */
  sandboxFailure(folder: string): Error | null;
  removeSandbox(folder: string): void;
  /** Removes the control group of a pod. */
  removeGroup(uid: string): Promise<void>;
  isRunning(process: ProcessIdentity): boolean;
  /** Returns false if the process is gone. */
  signal(process: ProcessIdentity, signal: NodeJS.Signals): boolean;
  /** Starts a run; `created` is called when its process exists and waits to be started. Throws FairleadError. */
  start(
    launch: Launch,
    image: Image,
    places: RunPlaces,
    created: (run: StartedRun) => void,
  ): Promise<StartedRun>;
  /**
   * Keeps a run that an earlier agent started from the machine's devices: earlier versions did not. What it has opened stays open.
   * Throws the kernel's error.
   */
  confine(id: string, container: Container, podUid: string): void;
  /** Returns the exit code of a run; null while it runs. */
  exitCode(id: string): number | null;
  /** Reports whether the process that records a run's exit code is there. */
  isMonitored(run: RunningContainer): boolean;
  /** Runs a command in a container to its end, or kills it after the timeout. */
  exec(run: RunningContainer, command: readonly string[], timeoutMs: number): Promise<CommandResult>;
  /** Applies a container's resources to its current run. Throws FairleadError. */
  resize(run: RunningContainer, container: Container): Promise<void>;
  /** Removes a run of a pod's container, running or not, from the runtime and the disk. */
  removeRun(run: RunningContainer, podUid: string): Promise<void>;
}

/** Returns the processes of a node, run by its OCI runtime. */
export function podProcesses(context: PodProcessesOptions): PodProcesses {
  const { options, paths, groups, devices } = context;
  return {
    adoptSandbox,
    createSandbox: (folder, pod) =>
      createSandbox(folder, pod, kernelHostname(pod, options), new Date(options.clock.now())),
    sandboxFailure: (folder) => (pauseErrors(folder) === '' ? null : pauseError(folder)),
    removeSandbox,
    async removeGroup(uid) {
      if (groups) await removeControlGroup(groups, `${options.cgroupParent}/pod${uid}`);
    },
    isRunning,
    signal: signalProcess,
    start: (launch, image, places, created) => startRun(context, launch, image, places, created),
    confine(id, container, podUid) {
      if (groups && isConfined(container)) devices?.confine(runGroup(options.cgroupParent, podUid, id));
    },
    exitCode: (id) => readExitCode(paths, id),
    isMonitored: ({ bundle }) => monitorOf(bundle) !== null,
    exec: (run, command, timeoutMs) => execInContainer(paths, run, command, timeoutMs),
    resize: (run, container) =>
      updateContainer(paths, run, containerResources(container, groups?.controllers ?? new Set())),
    async removeRun(run, podUid) {
      const group =
        groups === null ? null : join(groups.root, runGroup(options.cgroupParent, podUid, run.id));
      await removeContainer(paths, run, group);
      await monitorEnded(run.bundle);
      rmSync(join(paths.exits, run.id), { force: true });
      await removeRootfs(run.bundle);
    },
  };
}
