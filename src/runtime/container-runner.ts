import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { timestamp } from '../kube/timestamp.ts';
import type { Container } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import { ContainerFolder } from './container-folder.ts';
import { ContainerHealth } from './container-health.ts';
import { type LifecycleHook, runHook } from './lifecycle-hook.ts';
import { deleteContainer, execInContainer, monitorEnded, readExitCode } from './oci-runtime.ts';
import type { ContainerPhase, ContainerView, Termination } from './pod-status.ts';
import { isAlive, type ProcessIdentity, signalProcess } from './process-identity.ts';
import { RestartBackoff } from './restart-backoff.ts';
import { removeRootfs } from './rootfs.ts';
import { RunExit } from './run-exit.ts';
import { startRun } from './run-start.ts';
import { stopSignal } from './stop-signal.ts';
import { terminationMessage } from './termination-message.ts';
import { WantedImage } from './wanted-image.ts';
import type { RunnerContext } from './worker-context.ts';

/** After a hook has used up the time, the process still gets this much. */
const LEAST_STOP_MS = 2000;

/** One container of a pod through all its runs. */
export class ContainerRunner {
  readonly name: string;
  readonly #context: RunnerContext;
  readonly #folder: ContainerFolder;
  readonly #spec: Container;
  readonly #health = new ContainerHealth();
  readonly #backoff: RestartBackoff;
  readonly #wanted: WantedImage;
  #phase: ContainerPhase = { kind: 'waiting', reason: 'ContainerCreating', message: '' };
  #attempt = 0;
  #id = '';
  #process: ProcessIdentity | null = null;
  #startedAtMs = 0;
  #last: Termination | null = null;
  /** What the current run was started from. */
  #image = '';
  #imageId = '';
  /** It is ended to be started anew, whatever its restart policy. */
  #replaced = false;
  #stopSignal: NodeJS.Signals = 'SIGTERM';
  #exit: RunExit | null = null;
  #stopping: Promise<void> | null = null;
  /** Since when its process has been gone, without an exit code. */
  #missingSince = 0;

  constructor(context: RunnerContext, container: Container, podFolder: string) {
    this.#context = context;
    this.#spec = container;
    this.name = container.name;
    this.#folder = new ContainerFolder(join(podFolder, 'containers', container.name));
    this.#backoff = new RestartBackoff(context.options.clock, context.changed);
    this.#wanted = new WantedImage(context);
    this.#adopt();
  }

  get view(): ContainerView {
    return {
      phase: this.#phase,
      // A restart that is only planned does not count yet.
      restarts: this.#phase.kind === 'waiting' && this.#last ? this.#attempt - 1 : this.#attempt,
      last: this.#last,
      started: this.#health.started,
      ready: this.#health.ready,
      imageId: this.#imageId,
    };
  }

  get isRunning(): boolean {
    return this.#phase.kind === 'running';
  }

  /** When the current run began, in milliseconds; null while it does not run. */
  get startedAtMs(): number | null {
    return this.isRunning ? this.#startedAtMs : null;
  }

  /** The folder of its logs: a file for each run. */
  get logFolder(): string {
    return this.#folder.logs;
  }

  /** The current run's first process, while it runs. */
  get pid(): number | null {
    return this.isRunning ? (this.#process?.pid ?? null) : null;
  }

  /** Where its files lie: what it writes itself, and its logs. */
  get storage(): readonly string[] {
    return [join(this.#folder.bundle(this.#attempt), 'upper'), this.#folder.logs];
  }

  /** It is not to be started, for this reason. */
  refuse(reason: string, message: string): void {
    if (this.#phase.kind === 'waiting') this.#phase = { kind: 'waiting', reason, message };
  }

  /** The runtime's name of the current run. */
  get id(): string {
    return this.#id;
  }

  get paths() {
    return this.#context.paths;
  }

  /** What the current run's sessions need to know of it. */
  get current() {
    return {
      id: this.#id,
      bundle: this.#folder.bundle(this.#attempt),
      tty: this.#spec.tty === true,
    };
  }

  /** Resolves to the exit code once the current run has ended; null when it runs on all the same. */
  async exitCode(): Promise<number | null> {
    const id = this.#id;
    await this.#exit?.within(LEAST_STOP_MS, this.#context.deadline);
    if (this.#phase.kind === 'ended') return this.#phase.termination.exitCode;
    return this.#last?.id === id ? this.#last.exitCode : null;
  }

  /**
   * The log of the current run, or of the one before; while a restart is waited for the current run is the one that
   * has ended. Throws FairleadError "BadRequest" where there is none.
   */
  logFile(previous: boolean): string {
    const pod = this.#context.pod().metadata?.name;
    const problem = (message: string) => new FairleadError(message, { op: 'read log', code: 'BadRequest' });
    if (previous) {
      if (!this.#last) {
        throw problem(
          `previous terminated container ${JSON.stringify(this.name)} in pod ${JSON.stringify(pod)} not found`,
        );
      }
      return this.#folder.log(this.#attempt - 1);
    }
    if (this.#phase.kind !== 'waiting') return this.#folder.log(this.#attempt);
    if (this.#last) return this.#folder.log(this.#attempt - 1);
    const { reason } = this.#phase;
    throw problem(
      `container ${JSON.stringify(this.name)} in pod ${JSON.stringify(pod)} is waiting to start: ${reason}`,
    );
  }

  /** Starts the container when it does not run and its restart policy wants it to. */
  async ensure(policy: string, launch: Launch): Promise<void> {
    this.#notice();
    if (this.#phase.kind === 'running') {
      if (launch.container.image !== this.#image) this.#replace(launch);
      return;
    }
    if (this.#phase.kind === 'ended') {
      const { exitCode } = this.#phase.termination;
      if (this.#replaced) this.#backoff.forget();
      else if (policy === 'Never' || (policy === 'OnFailure' && exitCode === 0)) return;
      this.#planRestart(this.#phase.termination);
    }
    if (!this.#backoff.isEarly()) await this.#start(launch);
  }

  /** The one field of a running container that may change is its image: it is ended, and started from the new one. */
  #replace({ pod }: Launch): void {
    if (this.#replaced) return;
    this.#replaced = true;
    const message = `Container ${this.name} definition changed, will be restarted`;
    this.#context.events.event(pod, 'Normal', 'Killing', message);
    const graceMs = (pod.spec?.terminationGracePeriodSeconds ?? 30) * 1000;
    void this.stop(this.#context.options.clock.now() + graceMs, this.#context.address());
  }

  /** Looks whether the container has ended meanwhile. */
  nudge(): void {
    this.#notice();
  }

  /** Ends the container: preStop hook, SIGTERM (or the image's signal), and at the deadline (clock's milliseconds) SIGKILL. */
  stop(deadline: number, address: string): Promise<void> {
    this.#backoff.cancel();
    this.#notice();
    if (this.#phase.kind !== 'running') return Promise.resolve();
    this.#stopping ??= this.#stopRunning(deadline, address).finally(() => {
      this.#stopping = null;
    });
    return this.#stopping;
  }

  /** The sandbox is gone: whatever still runs is killed and counts as ended. */
  async abandon(): Promise<void> {
    if (this.#phase.kind !== 'running' || !this.#process) return;
    signalProcess(this.#process, 'SIGKILL');
    await this.#exit?.seen();
  }

  /** Removes everything but the logs' folder of the pod. */
  async dispose(): Promise<void> {
    this.#health.release();
    this.#backoff.cancel();
    await this.#clean(this.#attempt);
  }

  /** Stops watching; the container runs on. */
  release(): void {
    this.#health.release();
    this.#backoff.cancel();
  }

  /** Runs a command inside. */
  exec(command: readonly string[], timeoutMs: number) {
    return execInContainer(this.#context.paths, this.current, command, timeoutMs);
  }

  #adopt(): void {
    const saved = this.#folder.read();
    if (!saved) return;
    this.#id = saved.id;
    this.#attempt = saved.attempt;
    this.#process = saved.process;
    this.#image = saved.image;
    this.#imageId = saved.imageId;
    this.#stopSignal = saved.stopSignal;
    this.#last = saved.last;
    if (saved.ended) {
      this.#phase = { kind: 'ended', termination: saved.ended };
      return;
    }
    if (!saved.process || !saved.startedAt || !saved.begun) return;
    this.#phase = { kind: 'running', id: saved.id, startedAt: saved.startedAt };
    this.#startedAtMs = Date.parse(saved.startedAt);
    this.#exit = this.#newExit();
    const before = [
      ...(this.#context.pod().status?.containerStatuses ?? []),
      ...(this.#context.pod().status?.initContainerStatuses ?? []),
    ].find((status) => status.name === this.name);
    this.#health.adopt(before);
    this.#notice();
    if (this.#phase.kind === 'running') this.#probe();
  }

  async #start(launch: Launch): Promise<void> {
    const { options, events } = this.#context;
    const { container, pod } = launch;
    const image = this.#wanted.find(launch, {
      failed: (reason, message) => this.#waitFor(reason, message),
      changed: this.#context.changed,
    });
    if (!image) return;
    // The runs before, and what an agent that was killed in the middle of this one has left of it.
    await this.#clean(this.#attempt);
    this.#folder.removeLog(this.#attempt - 2);
    const { namespace = '', name = '' } = pod.metadata ?? {};
    this.#id = this.#idOf(this.#attempt);
    const places = {
      id: this.#id,
      bundle: this.#folder.bundle(this.#attempt),
      log: this.#folder.log(this.#attempt),
    };
    try {
      this.#image = container.image ?? '';
      this.#imageId = image.id;
      this.#stopSignal = stopSignal(container, image);
      this.#exit = this.#newExit();
      const { process, startedAt } = await startRun(this.#context, launch, image, places, (created) => {
        this.#process = created.process;
        this.#save(created.startedAt, false);
      });
      this.#process = process;
      this.#save(startedAt, true);
      this.#phase = { kind: 'running', id: this.#id, startedAt };
      this.#startedAtMs = options.clock.now();
      this.#backoff.started();
    } catch (error) {
      const reason =
        error instanceof FairleadError && /^[A-Z][a-zA-Z]+$/.test(error.code)
          ? error.code
          : 'RunContainerError';
      this.#waitFor(reason, messageOf(error));
      await this.#clean(this.#attempt);
      return;
    }
    this.#health.begin();
    events.event(pod, 'Normal', 'Started', `Started container ${this.name}`);
    options.logger.debug({ pod: `${namespace}/${name}`, container: this.name }, 'container started');
    const hook = container.lifecycle?.postStart;
    if (hook) {
      const result = await this.#hook(hook, 30_000);
      if (!result.ok) {
        events.event(pod, 'Warning', 'FailedPostStartHook', `PostStartHook failed: ${result.message}`);
        if (this.#process) signalProcess(this.#process, 'SIGKILL');
      }
    }
    this.#probe();
  }

  /** An image has come: whoever waits for one need wait no longer. */
  retryImage(): void {
    if (this.#phase.kind !== 'waiting' || !/Image/.test(this.#phase.reason)) return;
    this.#backoff.skip();
    this.#context.changed();
  }

  #probe(): void {
    const { options, events } = this.#context;
    const target = this.#probeTarget();
    this.#health.watch(this.#spec, target, options.clock, {
      changed: this.#context.changed,
      unhealthy: (kind, probe) => {
        const pod = this.#context.pod();
        const message = `Container ${this.name} failed ${kind} probe, will be restarted`;
        events.event(pod, 'Normal', 'Killing', message);
        const graceSeconds =
          probe.terminationGracePeriodSeconds ?? pod.spec?.terminationGracePeriodSeconds ?? 30;
        void this.stop(options.clock.now() + graceSeconds * 1000, target.address);
      },
      failed: (kind, result) => {
        const word = `${kind[0]?.toUpperCase()}${kind.slice(1)}`;
        events.event(this.#context.pod(), 'Warning', 'Unhealthy', `${word} probe failed: ${result.message}`);
      },
    });
  }

  #probeTarget(address = this.#context.address()) {
    return {
      address,
      container: this.#spec,
      exec: (command: readonly string[], timeoutMs: number) => this.exec(command, timeoutMs),
    };
  }

  /** Sees an end of the container: by its exit code, or by its process having gone. */
  #notice(): void {
    if (this.#phase.kind !== 'running') return;
    const { paths, options } = this.#context;
    const exitCode = readExitCode(paths, this.#id);
    if (exitCode === null) {
      if (this.#process && isAlive(this.#process)) return;
      // conmon writes the code a moment after the process has gone; without conmon there never is one.
      if (options.clock.now() - this.#goneSince() < 2000) {
        options.clock.after(50, () => this.#context.changed());
        return;
      }
    }
    const code = exitCode ?? 137;
    const { startedAt } = this.#phase;
    this.#phase = {
      kind: 'ended',
      termination: {
        id: this.#id,
        exitCode: code,
        reason: code === 0 ? 'Completed' : 'Error',
        message: this.#terminationMessage(code),
        startedAt,
        finishedAt: timestamp(options.clock.now()),
      },
    };
    this.#save(startedAt, true);
    this.#health.end();
    this.#missingSince = 0;
    this.#exit?.settle();
  }

  #goneSince(): number {
    if (this.#missingSince === 0) this.#missingSince = this.#context.options.clock.now();
    return this.#missingSince;
  }

  /** The next run, when it is time. */
  #planRestart(termination: Termination): void {
    const delay = this.#backoff.ended(this.#context.options.clock.now() - this.#startedAtMs);
    this.#replaced = false;
    this.#last = termination;
    this.#attempt++;
    const pod = this.#context.pod();
    this.#phase =
      delay === 0
        ? { kind: 'waiting', reason: 'ContainerCreating', message: '' }
        : {
            kind: 'waiting',
            reason: 'CrashLoopBackOff',
            message: `back-off ${delay / 1000}s restarting failed container=${this.name} pod=${pod.metadata?.name}_${pod.metadata?.namespace}(${pod.metadata?.uid})`,
          };
    if (delay > 0) {
      this.#context.events.event(
        pod,
        'Warning',
        'BackOff',
        `Back-off restarting failed container ${this.name} in pod ${pod.metadata?.name}`,
      );
    }
  }

  /** The container could not be started: says so and tries again, slower each time. */
  #waitFor(reason: string, message: string): void {
    const again = this.#backoff.refused() > 1;
    this.#phase =
      again && reason === 'ErrImagePull'
        ? {
            kind: 'waiting',
            reason: 'ImagePullBackOff',
            message: `Back-off pulling image ${JSON.stringify(this.#spec.image ?? '')}: ErrImagePull: ${message}`,
          }
        : { kind: 'waiting', reason, message };
    this.#context.events.event(this.#context.pod(), 'Warning', 'Failed', `Error: ${reason}: ${message}`);
  }

  async #stopRunning(deadline: number, address: string): Promise<void> {
    const { options, events } = this.#context;
    const { clock } = options;
    const hook = this.#spec.lifecycle?.preStop;
    const left = () => Math.min(deadline, this.#context.deadline()) - clock.now();
    if (hook && left() > 0) {
      const result = await this.#exit?.during(this.#hook(hook, left(), address), left());
      if (result && !result.ok) {
        events.event(
          this.#context.pod(),
          'Warning',
          'FailedPreStopHook',
          `PreStopHook failed: ${result.message}`,
        );
      }
    }
    const hooked = hook !== undefined;
    if (this.#process && this.isRunning && left() > 0) signalProcess(this.#process, this.#stopSignal);
    const wait = Math.max(left(), hooked && deadline > clock.now() - 1 ? LEAST_STOP_MS : 0);
    if (wait > 0) await this.#exit?.within(wait, this.#context.deadline);
    if (this.isRunning && this.#process) {
      signalProcess(this.#process, 'SIGKILL');
      await this.#exit?.seen();
    }
  }

  #hook(hook: LifecycleHook, timeoutMs: number, address?: string) {
    return runHook(hook, this.#probeTarget(address), this.#context.options.clock, timeoutMs);
  }

  #newExit(): RunExit {
    return new RunExit(this.#context.options.clock, () => {
      this.#notice();
      return this.isRunning;
    });
  }

  #terminationMessage(code: number): string {
    return (
      this.#health.complaint ??
      terminationMessage(
        this.#folder.bundle(this.#attempt),
        this.#folder.log(this.#attempt),
        this.#spec,
        code,
      )
    );
  }

  #idOf(attempt: number): string {
    const uid = this.#context.pod().metadata?.uid ?? '';
    return `${uid.slice(0, 13)}-${this.name}-${attempt}`;
  }

  /** Removes this run and those before it from the runtime and the disk; their logs stay. */
  async #clean(last: number): Promise<void> {
    const { paths } = this.#context;
    for (const { attempt, bundle } of this.#folder.bundles()) {
      if (attempt > last) continue;
      const id = this.#idOf(attempt);
      await deleteContainer(paths, id);
      await monitorEnded(bundle);
      rmSync(join(paths.exits, id), { force: true });
      removeRootfs(bundle);
    }
  }

  /** `begun`: its program runs, and does not only wait for the runtime's word. */
  #save(startedAt: string, begun: boolean): void {
    this.#folder.write({
      id: this.#id,
      attempt: this.#attempt,
      process: this.#process,
      begun,
      startedAt,
      image: this.#image,
      imageId: this.#imageId,
      stopSignal: this.#stopSignal,
      last: this.#last,
      ended: this.#phase.kind === 'ended' ? this.#phase.termination : null,
    });
  }
}
