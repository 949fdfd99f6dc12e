import { join } from 'node:path';
import { timestamp } from '../kube/timestamp.ts';
import type { Container } from '../kube/types.ts';
import { describeError, hasCode, messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import { ContainerFolder } from './container-folder.ts';
import { ContainerHealth } from './container-health.ts';
import { changeOf } from './container-resources.ts';
import { NO_RUN, recordedState, recordOf } from './current-run.ts';
import { MAX_TIMER_MS } from './grace-period.ts';
import { type KubeletReason, reasonOf } from './kubelet-error.ts';
import {
  type ContainerEvent,
  containerStep,
  NEW_CONTAINER,
  nextContainerState,
  restartCount,
  restartRules,
} from './lifecycle.ts';
import { type LifecycleHook, runHook } from './lifecycle-hook.ts';
import { containerLogFolder, linkLog } from './node-logs.ts';
import type { ContainerView } from './pod-status.ts';
import { backOffMessages, RestartBackoff } from './restart-backoff.ts';
import { treesFolder } from './rootfs.ts';
import { RunExit } from './run-exit.ts';
import { attemptOfLog, removeRuns, runId } from './run-files.ts';
import { stopRun } from './run-stop.ts';
import { stopSignal } from './stop-signal.ts';
import { terminationMessage } from './termination-message.ts';
import { WantedImage } from './wanted-image.ts';
import type { RunnerContext } from './worker-context.ts';

/** How long an exit that was signalled is waited for. */
const EXIT_MS = 2000;
/** conmon writes the exit code within this time after the process has exited, unless it has ended without one. */
const EXIT_CODE_MS = 2000;
const IMAGE_REASONS = new Set(['ErrImagePull', 'ImagePullBackOff', 'ErrImageNeverPull', 'InvalidImageName']);

/** Runs one container of a pod through all its runs; lifecycle.ts has its states. */
export class ContainerRunner {
  readonly name: string;
  readonly #podFolder: string;
  readonly #context: RunnerContext;
  readonly #folder: ContainerFolder;
  readonly #spec: Container;
  readonly #health = new ContainerHealth();
  readonly #backoff: RestartBackoff;
  readonly #wanted: WantedImage;
  #state = NEW_CONTAINER;
  #run = NO_RUN;
  #startedAtMs = 0;
  #exit: RunExit | null = null;
  #stopping: Promise<void> | null = null;
  /** Since when its process has been missing without an exit code. */
  #missingSince = 0;

  constructor(context: RunnerContext, container: Container, podFolder: string) {
    this.#context = context;
    this.#podFolder = podFolder;
    this.#spec = container;
    this.name = container.name;
    const { stateDir } = context.options;
    this.#folder = new ContainerFolder(
      join(podFolder, 'containers', container.name),
      containerLogFolder(stateDir, context.pod(), container.name),
    );
    this.#backoff = new RestartBackoff(context.options.clock, context.changed);
    this.#wanted = new WantedImage(context);
    this.#adopt();
  }

  get view(): ContainerView {
    return {
      phase: this.#state.phase,
      isReplaced: this.#state.isReplaced,
      restarts: restartCount(this.#state),
      last: this.#state.last,
      started: this.#health.started,
      ready: this.#health.ready,
      imageId: this.#run.imageId,
      user: this.#run.user,
      resources: this.#run.resources,
    };
  }

  get isRunning(): boolean {
    return this.#state.phase.kind === 'running';
  }

  /** Start of the current run, in milliseconds; null while it does not run. */
  get startedAtMs(): number | null {
    return this.isRunning ? this.#startedAtMs : null;
  }

  /** The folder of its logs: a file for each run. */
  get logFolder(): string {
    return this.#folder.logs;
  }

  /** The first process of the current run, while it runs. */
  get pid(): number | null {
    return this.isRunning ? (this.#run.process?.pid ?? null) : null;
  }

  /** The folders of its files and of its logs. */
  get storage(): readonly string[] {
    const bundle = this.#folder.bundle(this.#state.attempt);
    return [join(bundle, 'upper'), treesFolder(bundle), this.#folder.logs];
  }

  /** Records why the container must not be started now. */
  refuse(reason: string, message: string): void {
    this.#become({ type: 'refused', reason, message });
  }

  /** The runtime's name of the current run. */
  get id(): string {
    return this.#run.id;
  }

  get paths() {
    return this.#context.paths;
  }

  /** The current run, for exec and attach sessions. */
  get current() {
    return {
      id: this.#run.id,
      bundle: this.#folder.bundle(this.#state.attempt),
      tty: this.#spec.tty === true,
    };
  }

  /** Resolves to the exit code once the current run has ended; null when it continues to run. */
  async exitCode(): Promise<number | null> {
    const { id } = this.#run;
    const until = this.#context.options.clock.now() + EXIT_MS;
    await this.#exit?.until(() => Math.min(until, this.#context.grace.endsAt));
    if (this.#state.phase.kind === 'ended') return this.#state.phase.termination.exitCode;
    return this.#state.last?.id === id ? this.#state.last.exitCode : null;
  }

  /**
   * Returns the log of the current or the previous run; while a restart is pending, the current run is the ended one.
   * Throws FairleadError "BadRequest" if there is none.
   */
  logFile(previous: boolean): string {
    const subject = { container: this.name, pod: this.#context.pod().metadata?.name };
    return this.#folder.log(attemptOfLog(this.#state, previous, subject));
  }

  /** Executes the container's next step, unless back-off delays it. */
  async ensure(launch: Launch): Promise<void> {
    this.#notice();
    const { container, pod } = launch;
    const change = changeOf(this.#run, container);
    switch (containerStep(this.#state, restartRules(pod, container), change === 'restart')) {
      case 'replace':
        this.#replace(launch);
        return;
      case 'restart':
        if (this.#state.isReplaced) this.#backoff.forget();
        this.#planRestart();
        break;
      case 'none':
        if (change === 'resize') await this.#resize(container);
        return;
      case 'start':
        break;
    }
    if (!this.#backoff.isEarly()) await this.#start(launch);
  }

  /** Changes the limits of the running container (KEP-1287). */
  async #resize(container: Container): Promise<void> {
    const { processes, events, pod } = this.#context;
    try {
      await processes.resize(this.current, container);
    } catch (error) {
      events.event(pod(), 'Warning', 'FailedResize', messageOf(error));
      throw error;
    }
    this.#run = { ...this.#run, resources: container.resources };
    this.#saveIfPossible();
    events.event(pod(), 'Normal', 'ResizeCompleted', `Resized container ${this.name}`);
  }

  /** Stops the run, to restart with the changed definition. */
  #replace({ pod }: Launch): void {
    this.#become({ type: 'replaced' });
    const message = `Container ${this.name} definition changed, will be restarted`;
    this.#context.events.event(pod, 'Normal', 'Killing', message);
    const graceMs = (pod.spec?.terminationGracePeriodSeconds ?? 30) * 1000;
    void this.stop(this.#context.options.clock.now() + graceMs, this.#context.address());
  }

  /** Checks whether the container has exited. */
  checkExit(): void {
    this.#notice();
  }

  /** Stops the container: preStop hook, SIGTERM (or the image's signal), and at the deadline (clock's milliseconds) SIGKILL. */
  stop(deadline: number, address: string): Promise<void> {
    this.#backoff.cancel();
    this.#notice();
    if (!this.isRunning) return Promise.resolve();
    // Liveness is no longer probed, readiness is.
    this.#health.stopping();
    this.#stopping ??= this.#stopRunning(deadline, address).finally(() => {
      this.#stopping = null;
    });
    return this.#stopping;
  }

  /** Kills the container immediately, because its sandbox is gone. */
  async abandon(): Promise<void> {
    if (!this.isRunning || !this.#run.process) return;
    this.#signal('SIGKILL');
    await this.#exit?.detected();
  }

  /** Removes everything except the logs' folder of the pod. */
  async dispose(): Promise<void> {
    this.#health.release();
    this.#backoff.cancel();
    await this.#clean(this.#state.attempt);
  }

  /** Stops watching; the container keeps running. */
  release(): void {
    this.#health.release();
    this.#backoff.cancel();
  }

  /** Runs a command in the container. */
  exec(command: readonly string[], timeoutMs: number) {
    return this.#context.processes.exec(this.current, command, timeoutMs);
  }

  #adopt(): void {
    const saved = this.#folder.read();
    if (!saved) return;
    const { id, process, image, imageId, user, resources, stopSignal } = saved;
    this.#run = { id, process, image, imageId, user, resources, stopSignal };
    this.#state = recordedState(saved);
    if (saved.ended || !process || !saved.startedAt || !saved.begun) return;
    this.#become({ type: 'started', id, startedAt: saved.startedAt });
    this.#startedAtMs = Date.parse(saved.startedAt);
    this.#exit = this.#newExit();
    const { status } = this.#context.pod();
    const before = [...(status?.containerStatuses ?? []), ...(status?.initContainerStatuses ?? [])].find(
      ({ name }) => name === this.name,
    );
    this.#health.adopt(before);
    this.#notice();
    if (!this.isRunning) return;
    this.#confine(id);
    this.#probe();
  }

  #confine(id: string): void {
    const { processes, options, pod } = this.#context;
    try {
      processes.confine(id, this.#spec, pod().metadata?.uid ?? '');
    } catch (error) {
      // Its group is gone: so are its processes.
      if (hasCode(error, 'ENOENT')) return;
      options.logger.error({ err: error, container: id }, `opens the machine's devices: ${messageOf(error)}`);
    }
  }

  async #start(launch: Launch): Promise<void> {
    const { options, events, processes } = this.#context;
    const { container, pod } = launch;
    const image = this.#wanted.find(launch, {
      failed: (reason, message) => this.#waitFor(reason, message),
      changed: this.#context.changed,
    });
    if (!image) return;
    // Earlier runs, and leftovers of an agent that was killed during a start.
    await this.#clean(this.#state.attempt);
    this.#folder.removeLog(this.#state.attempt - 2);
    const { namespace = '', name = '' } = pod.metadata ?? {};
    const id = this.#idOf(this.#state.attempt);
    this.#run = { ...this.#run, id };
    const places = {
      id,
      bundle: this.#folder.bundle(this.#state.attempt),
      log: this.#folder.log(this.#state.attempt),
    };
    try {
      linkLog(options.stateDir, pod, this.name, id, places.log);
      this.#run = {
        ...this.#run,
        image: container.image ?? '',
        imageId: image.id,
        resources: container.resources,
        stopSignal: stopSignal(container, image),
      };
      this.#exit = this.#newExit();
      const { process, startedAt, user } = await processes.start(launch, image, places, (created) => {
        this.#run = { ...this.#run, process: created.process, user: created.user };
        this.#save({ begun: false, createdAt: created.startedAt });
      });
      this.#run = { ...this.#run, process, user };
      this.#become({ type: 'started', id, startedAt });
      this.#saveIfPossible();
      this.#startedAtMs = options.clock.now();
      this.#backoff.started();
    } catch (error) {
      // If the pod's pause process has ended, the runtime only says that its namespaces are missing.
      const cause = processes.sandboxFailure(this.#podFolder) ?? error;
      this.#waitFor(reasonOf(cause, 'RunContainerError'), describeError(cause));
      await this.#clean(this.#state.attempt);
      return;
    }
    this.#health.begin();
    events.event(pod, 'Normal', 'Started', `Started container ${this.name}`);
    options.logger.debug({ pod: `${namespace}/${name}`, container: this.name }, 'container started');
    const hook = container.lifecycle?.postStart;
    if (hook) void this.#afterStart(hook);
    else this.#probe();
  }

  /** Runs the postStart hook; the container counts as started after it. */
  async #afterStart(hook: LifecycleHook): Promise<void> {
    const { id } = this;
    // A postStart hook has no time limit.
    const result = await this.#exit?.during(this.#hook(hook, MAX_TIMER_MS), MAX_TIMER_MS);
    if (!this.isRunning || this.id !== id) return;
    if (result && !result.ok) {
      const message = `PostStartHook failed: ${result.message}`;
      this.#context.events.event(this.#context.pod(), 'Warning', 'FailedPostStartHook', message);
      this.#signal('SIGKILL');
    }
    if (!this.#stopping) this.#probe();
  }

  /** Retries immediately if it waits for an image, after one was stored. */
  retryImage(): void {
    const { phase } = this.#state;
    if (phase.kind !== 'waiting' || !IMAGE_REASONS.has(phase.reason)) return;
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
      problem: (kind, { ok, message }) => {
        const word = `${kind[0]?.toUpperCase()}${kind.slice(1)}`;
        const [reason, verdict] = ok ? ['ProbeWarning', 'warning'] : ['Unhealthy', 'failed'];
        events.event(this.#context.pod(), 'Warning', reason, `${word} probe ${verdict}: ${message}`);
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

  /** Detects an exit of the container, by its exit code or the absence of its process. */
  #notice(): void {
    if (!this.isRunning) return;
    const { processes, options } = this.#context;
    let exitCode = processes.exitCode(this.#run.id);
    if (exitCode === null) {
      if (this.#run.process && processes.isRunning(this.#run.process)) return;
      const isLate = options.clock.now() - this.#goneSince() >= EXIT_CODE_MS;
      if (!isLate && processes.isMonitored(this.current)) {
        options.clock.after(50, () => this.#context.changed());
        return;
      }
      // The monitor writes it right before it ends.
      exitCode = processes.exitCode(this.#run.id);
    }
    const code = exitCode ?? 137;
    this.#become({
      type: 'exited',
      exitCode: code,
      message: this.#terminationMessage(code),
      at: timestamp(options.clock.now()),
    });
    this.#saveIfPossible();
    this.#health.end();
    this.#missingSince = 0;
    this.#exit?.settle();
  }

  #goneSince(): number {
    if (this.#missingSince === 0) this.#missingSince = this.#context.options.clock.now();
    return this.#missingSince;
  }

  /** Plans the next run, and reports a back-off. */
  #planRestart(): void {
    const delay = this.#backoff.ended(this.#context.options.clock.now() - this.#startedAtMs);
    const pod = this.#context.pod();
    const { reason, event } = backOffMessages(delay, this.name, pod);
    this.#become({ type: 'restarted', backOff: reason });
    if (delay > 0) this.#context.events.event(pod, 'Warning', 'BackOff', event);
  }

  #become(event: ContainerEvent): void {
    this.#state = nextContainerState(this.#state, event);
  }

  /** Reports that the container cannot be started; retries with increasing delays. */
  #waitFor(reason: KubeletReason, message: string): void {
    const isRepeated = this.#backoff.refused() > 1;
    const image = JSON.stringify(this.#spec.image ?? '');
    if (isRepeated && reason === 'ErrImagePull') {
      this.refuse('ImagePullBackOff', `Back-off pulling image ${image}: ErrImagePull: ${message}`);
    } else this.refuse(reason, message);
    this.#context.events.event(this.#context.pod(), 'Warning', 'Failed', `Error: ${reason}: ${message}`);
  }

  async #stopRunning(deadline: number, address: string): Promise<void> {
    const { options, events, grace } = this.#context;
    const preStop = this.#spec.lifecycle?.preStop;
    if (!this.#exit) return;
    await stopRun({
      clock: options.clock,
      deadline,
      grace,
      exit: this.#exit,
      hook: preStop ? (ms, signal) => this.#hook(preStop, ms, { address, signal }) : null,
      hookFailed: (message) =>
        events.event(this.#context.pod(), 'Warning', 'FailedPreStopHook', `PreStopHook failed: ${message}`),
      quiet: this.#context.quiet(),
      isRunning: () => this.isRunning,
      terminate: () => this.#signal(this.#run.stopSignal),
      kill: () => this.#signal('SIGKILL'),
    });
  }

  #hook(
    hook: LifecycleHook,
    timeoutMs: number,
    { address, signal }: { address?: string; signal?: AbortSignal } = {},
  ) {
    return runHook(hook, this.#probeTarget(address), this.#context.options.clock, timeoutMs, signal);
  }

  #signal(signal: NodeJS.Signals): void {
    if (this.#run.process) this.#context.processes.signal(this.#run.process, signal);
  }

  #newExit(): RunExit {
    return new RunExit(this.#context.options.clock, () => {
      this.#notice();
      return this.isRunning;
    });
  }

  #terminationMessage(code: number): string {
    return (
      this.#health.failureMessage ??
      terminationMessage(
        this.#folder.bundle(this.#state.attempt),
        this.#folder.log(this.#state.attempt),
        this.#spec,
        code,
      )
    );
  }

  #idOf(attempt: number): string {
    return runId(this.#context.pod(), this.name, attempt);
  }

  #clean(last: number): Promise<void> {
    return removeRuns(this.#context.processes, this.#folder, this.#context.pod(), this.name, last);
  }

  /**
   * Saves the state. On a full disk, a later agent finds an older record, and checks the process itself to determine
   * whether the run has ended.
   */
  #saveIfPossible(): void {
    try {
      this.#save({ begun: true });
    } catch (error) {
      this.#context.options.logger.warn(
        { container: this.#run.id },
        `failed to save the state of a container: ${messageOf(error)}`,
      );
    }
  }

  #save(progress: Parameters<typeof recordOf>[2]): void {
    this.#folder.write(recordOf(this.#run, this.#state, progress));
  }
}
