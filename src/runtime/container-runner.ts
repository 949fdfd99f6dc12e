import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Container, Pod } from '../kube/types.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { containerConfig, type Launch } from './container-config.ts';
import { type LifecycleHook, runHook } from './lifecycle-hook.ts';
import {
  deleteContainer,
  execInContainer,
  monitorEnded,
  readExitCode,
  startContainer,
} from './oci-runtime.ts';
import type { ContainerPhase, ContainerView, Termination } from './pod-status.ts';
import type { WorkerContext } from './pod-worker.ts';
import { startProber } from './prober.ts';
import { isAlive, type ProcessIdentity, signalProcess } from './process-identity.ts';
import { pullCredentials } from './pull-secrets.ts';
import { type Image, removeRootfs } from './rootfs.ts';
import { stopSignal } from './stop-signal.ts';
import { terminationMessage } from './termination-message.ts';

export interface RunnerContext extends WorkerContext {
  readonly pod: () => Pod;
  /** Where the pod's ports are reached. */
  readonly address: () => string;
  /** The container has changed: the pod is to be looked at again. */
  readonly changed: () => void;
  /** When the pod's time is over, in the clock's milliseconds. */
  readonly deadline: () => number;
}

/** What of a container survives the agent. */
interface Saved {
  readonly id: string;
  readonly attempt: number;
  readonly process: ProcessIdentity | null;
  /** Its program had been started; if not, the run is begun anew. */
  readonly begun: boolean;
  readonly startedAt: string | null;
  readonly image: string;
  readonly imageId: string;
  readonly stopSignal: NodeJS.Signals;
  readonly last: Termination | null;
  /** How the run came out, once it is over. */
  readonly ended: Termination | null;
}

const FIRST_BACKOFF_MS = 10_000;
const MOST_BACKOFF_MS = 300_000;
/** A container that ran this long has earned a fresh start. */
const BACKOFF_RESET_MS = 600_000;
/** After a hook has used up the time, the process still gets this much. */
const LEAST_STOP_MS = 2000;

/** One container of a pod through all its runs. */
export class ContainerRunner {
  readonly name: string;
  readonly #context: RunnerContext;
  readonly #folder: string;
  readonly #spec: Container;
  #phase: ContainerPhase = { kind: 'waiting', reason: 'ContainerCreating', message: '' };
  #attempt = 0;
  #id = '';
  #process: ProcessIdentity | null = null;
  #startedAtMs = 0;
  #last: Termination | null = null;
  #started = false;
  #ready = false;
  #unhealthy: string | null = null;
  #failures = 0;
  /** How often in a row it could not be started. */
  #refusals = 0;
  /** What the current run was started from. */
  #image = '';
  #imageId = '';
  /** It is ended to be started anew, whatever its restart policy. */
  #replaced = false;
  #stopSignal: NodeJS.Signals = 'SIGTERM';
  #pulling = false;
  /** For the next start: with imagePullPolicy Always every start asks the registry. */
  #pulled: Image | null = null;
  #notBefore = 0;
  #probing: AbortController | null = null;
  #exit: PromiseWithResolvers<void> | null = null;
  #stopping: Promise<void> | null = null;
  #cancelBackoff = () => {};

  constructor(context: RunnerContext, container: Container, podFolder: string) {
    this.#context = context;
    this.#spec = container;
    this.name = container.name;
    this.#folder = join(podFolder, 'containers', container.name);
    mkdirSync(join(this.#folder, 'logs'), { recursive: true, mode: 0o700 });
    this.#adopt();
  }

  get view(): ContainerView {
    return {
      phase: this.#phase,
      // A restart that is only planned does not count yet.
      restarts: this.#phase.kind === 'waiting' && this.#last ? this.#attempt - 1 : this.#attempt,
      last: this.#last,
      started: this.#started,
      ready: this.#ready,
      imageId: this.#imageId,
    };
  }

  get isRunning(): boolean {
    return this.#phase.kind === 'running';
  }

  /** The current run's first process, while it runs. */
  get pid(): number | null {
    return this.isRunning ? (this.#process?.pid ?? null) : null;
  }

  /** Where its files lie: what it writes itself, and its logs. */
  get storage(): readonly string[] {
    return [join(this.#bundle(this.#attempt), 'upper'), join(this.#folder, 'logs')];
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
      bundle: this.#bundle(this.#attempt),
      tty: this.#spec.tty === true,
    };
  }

  /** Resolves to the exit code once the current run has ended; null when it runs on all the same. */
  async exitCode(): Promise<number | null> {
    const id = this.#id;
    await this.#exitWithin(LEAST_STOP_MS);
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
      return this.#logOf(this.#attempt - 1);
    }
    if (this.#phase.kind !== 'waiting') return this.#logOf(this.#attempt);
    if (this.#last) return this.#logOf(this.#attempt - 1);
    const { reason } = this.#phase;
    throw problem(
      `container ${JSON.stringify(this.name)} in pod ${JSON.stringify(pod)} is waiting to start: ${reason}`,
    );
  }

  #logOf(attempt: number): string {
    return join(this.#folder, 'logs', `${attempt}.log`);
  }

  /** Starts the container when it does not run and its restart policy wants it to. */
  async ensure(policy: string, launch: Launch): Promise<void> {
    this.#notice();
    const { clock } = this.#context.options;
    if (this.#phase.kind === 'running') {
      if (launch.container.image !== this.#image) this.#replace(launch);
      return;
    }
    if (this.#phase.kind === 'ended') {
      const { exitCode } = this.#phase.termination;
      if (this.#replaced) this.#failures = 0;
      else if (policy === 'Never' || (policy === 'OnFailure' && exitCode === 0)) return;
      this.#planRestart(this.#phase.termination);
    }
    if (clock.now() < this.#notBefore) {
      this.#wakeAt(this.#notBefore);
      return;
    }
    await this.#start(launch);
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
    this.#cancelBackoff();
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
    await this.#exited();
  }

  /** Removes everything but the logs' folder of the pod. */
  async dispose(): Promise<void> {
    this.#probing?.abort();
    this.#cancelBackoff();
    await this.#clean(this.#attempt);
  }

  /** Stops watching; the container runs on. */
  release(): void {
    this.#probing?.abort();
    this.#cancelBackoff();
  }

  /** Runs a command inside. */
  exec(command: readonly string[], timeoutMs: number) {
    return execInContainer(this.#context.paths, this.current, command, timeoutMs);
  }

  #adopt(): void {
    let saved: Saved;
    try {
      saved = JSON.parse(readFileSync(join(this.#folder, 'state.json'), 'utf8')) as Saved;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return;
      throw error;
    }
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
    this.#exit = Promise.withResolvers();
    const before = [
      ...(this.#context.pod().status?.containerStatuses ?? []),
      ...(this.#context.pod().status?.initContainerStatuses ?? []),
    ].find((status) => status.name === this.name);
    // What was ready stays so until a probe says otherwise: a restart of the agent takes nobody out of service.
    this.#started = before?.started ?? false;
    this.#ready = before?.ready ?? false;
    this.#notice();
    if (this.#phase.kind === 'running') this.#probe();
  }

  async #start(launch: Launch): Promise<void> {
    const { options, events, paths, groups } = this.#context;
    const { container, pod } = launch;
    const image = this.#findImage(launch);
    if (!image) return;
    // The runs before, and what an agent that was killed in the middle of this one has left of it.
    await this.#clean(this.#attempt);
    rmSync(this.#logOf(this.#attempt - 2), { force: true });
    const { namespace = '', name = '' } = pod.metadata ?? {};
    this.#id = this.#idOf(this.#attempt);
    const bundle = this.#bundle(this.#attempt);
    try {
      const environment = await launch.environment();
      this.#image = container.image ?? '';
      this.#imageId = image.id;
      this.#stopSignal = stopSignal(container, image);
      const config = containerConfig(launch, environment, image, {
        bundle,
        cgroupsPath: `${options.cgroupParent}/pod${pod.metadata?.uid ?? ''}/${this.#id}`,
        cgroupControllers: groups?.controllers ?? new Set(),
      });
      writeFileSync(join(bundle, 'config.json'), JSON.stringify(config), { mode: 0o600 });
      const startedAt = this.#timestamp();
      this.#exit = Promise.withResolvers();
      this.#process = await this.#context.starts(() =>
        startContainer(
          paths,
          {
            id: this.#id,
            bundle,
            log: this.#logOf(this.#attempt),
            stdin: container.stdin === true,
            stdinOnce: container.stdinOnce === true,
            tty: container.tty === true,
          },
          (process) => {
            this.#process = process;
            this.#save(startedAt, false);
          },
        ),
      );
      this.#save(startedAt, true);
      this.#phase = { kind: 'running', id: this.#id, startedAt };
      this.#startedAtMs = options.clock.now();
      this.#refusals = 0;
    } catch (error) {
      const reason =
        error instanceof FairleadError && /^[A-Z][a-zA-Z]+$/.test(error.code)
          ? error.code
          : 'RunContainerError';
      this.#waitFor(reason, messageOf(error));
      await this.#clean(this.#attempt);
      return;
    }
    this.#started = false;
    this.#ready = false;
    this.#unhealthy = null;
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

  /** The image, when it is here; else it is pulled meanwhile, and the pod looked at again afterwards. */
  #findImage({ container, pod }: Launch): Image | null {
    const { images, client, events } = this.#context;
    if (this.#pulling) return null;
    const name = JSON.stringify(container.image ?? '');
    try {
      const image = this.#pulled ?? images.present(container);
      this.#pulled = null;
      if (image) return image;
    } catch (error) {
      this.#waitFor(error instanceof FairleadError ? error.code : 'ErrImagePull', messageOf(error));
      return null;
    }
    this.#pulling = true;
    events.event(pod, 'Normal', 'Pulling', `Pulling image ${name}`);
    images
      .pull(container, (reference) => pullCredentials(client, pod, reference))
      .then(
        (image) => {
          this.#pulled = image;
          events.event(pod, 'Normal', 'Pulled', `Successfully pulled image ${name}`);
        },
        (error: unknown) => this.#waitFor('ErrImagePull', messageOf(error)),
      )
      .finally(() => {
        this.#pulling = false;
        this.#context.changed();
      });
    return null;
  }

  /** An image has come: whoever waits for one need wait no longer. */
  retryImage(): void {
    if (this.#phase.kind !== 'waiting' || !/Image/.test(this.#phase.reason)) return;
    this.#notBefore = 0;
    this.#context.changed();
  }

  #probe(): void {
    const probing = new AbortController();
    this.#probing = probing;
    const { options, events } = this.#context;
    const target = {
      address: this.#context.address(),
      container: this.#spec,
      exec: (command: readonly string[], timeoutMs: number) => this.exec(command, timeoutMs),
    };
    startProber(this.#spec, target, options.clock, probing.signal, {
      onStarted: () => {
        this.#started = true;
        this.#context.changed();
      },
      onReady: (ready) => {
        if (this.#ready === ready) return;
        this.#ready = ready;
        this.#context.changed();
      },
      onUnhealthy: (kind, message, probe) => {
        const pod = this.#context.pod();
        events.event(
          pod,
          'Normal',
          'Killing',
          `Container ${this.name} failed ${kind} probe, will be restarted`,
        );
        this.#unhealthy = message;
        const grace =
          (probe.terminationGracePeriodSeconds ?? pod.spec?.terminationGracePeriodSeconds ?? 30) * 1000;
        void this.stop(options.clock.now() + grace, target.address);
      },
      onFailure: (kind, result) => {
        const word = `${kind[0]?.toUpperCase()}${kind.slice(1)}`;
        events.event(this.#context.pod(), 'Warning', 'Unhealthy', `${word} probe failed: ${result.message}`);
      },
    });
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
        finishedAt: this.#timestamp(),
      },
    };
    this.#save(startedAt, true);
    this.#probing?.abort();
    this.#ready = false;
    this.#started = false;
    this.#missingSince = 0;
    this.#exit?.resolve();
  }

  #missingSince = 0;

  #goneSince(): number {
    if (this.#missingSince === 0) this.#missingSince = this.#context.options.clock.now();
    return this.#missingSince;
  }

  /** First restart at once, then after 10 s, 20 s, … 5 min; a long run starts anew. */
  #planRestart(termination: Termination): void {
    const { clock } = this.#context.options;
    const ran = clock.now() - this.#startedAtMs;
    this.#failures = ran > BACKOFF_RESET_MS ? 0 : this.#failures + 1;
    this.#replaced = false;
    this.#last = termination;
    this.#attempt++;
    const delay =
      this.#failures <= 1 ? 0 : Math.min(FIRST_BACKOFF_MS * 2 ** (this.#failures - 2), MOST_BACKOFF_MS);
    this.#notBefore = clock.now() + delay;
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
    const { clock } = this.#context.options;
    const pod = this.#context.pod();
    this.#refusals++;
    const delay = Math.min(1000 * 2 ** (this.#refusals - 1), MOST_BACKOFF_MS);
    this.#notBefore = clock.now() + delay;
    const backsOff = reason === 'ErrImagePull' && this.#refusals > 1;
    this.#phase = backsOff
      ? {
          kind: 'waiting',
          reason: 'ImagePullBackOff',
          message: `Back-off pulling image ${JSON.stringify(this.#spec.image ?? '')}: ErrImagePull: ${message}`,
        }
      : { kind: 'waiting', reason, message };
    this.#context.events.event(pod, 'Warning', 'Failed', `Error: ${reason}: ${message}`);
    this.#wakeAt(this.#notBefore);
  }

  async #stopRunning(deadline: number, address: string): Promise<void> {
    const { options, events } = this.#context;
    const { clock } = options;
    const hook = this.#spec.lifecycle?.preStop;
    const left = () => Math.min(deadline, this.#context.deadline()) - clock.now();
    if (hook && left() > 0) {
      const result = await this.#withDeadline(this.#hook(hook, left(), address), left());
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
    if (wait > 0 && this.isRunning) await this.#exitWithin(wait);
    if (this.isRunning && this.#process) {
      signalProcess(this.#process, 'SIGKILL');
      await this.#exited();
    }
  }

  #hook(hook: LifecycleHook, timeoutMs: number, address?: string) {
    const target = {
      address: address ?? this.#context.address(),
      container: this.#spec,
      exec: (command: readonly string[], ms: number) => this.exec(command, ms),
    };
    return runHook(hook, target, this.#context.options.clock, timeoutMs);
  }

  async #withDeadline<T>(work: Promise<T>, ms: number): Promise<T | null> {
    let cancel = () => {};
    const late = new Promise<null>((resolve) => {
      cancel = this.#context.options.clock.after(ms, () => resolve(null));
    });
    // A container that ends in the middle of its hook needs no more of it.
    const ended = (this.#exit?.promise ?? new Promise<void>(() => {})).then(() => null);
    try {
      return await Promise.race([work, late, ended]);
    } finally {
      cancel();
    }
  }

  async #exitWithin(ms: number): Promise<void> {
    const until = this.#context.options.clock.now() + ms;
    // A shorter grace period may be asked for in the meantime: `deadline` is looked at again now and then.
    while (this.isRunning) {
      const left = Math.min(until, Math.max(this.#context.deadline(), 0)) - this.#context.options.clock.now();
      if (left <= 0) return;
      await this.#withDeadline(new Promise<never>(() => {}), Math.min(left, 250));
      this.#notice();
    }
  }

  async #exited(): Promise<void> {
    while (this.isRunning) {
      await this.#withDeadline(new Promise<never>(() => {}), 20);
      this.#notice();
    }
  }

  #terminationMessage(code: number): string {
    return (
      this.#unhealthy ??
      terminationMessage(this.#bundle(this.#attempt), this.#logOf(this.#attempt), this.#spec, code)
    );
  }

  #bundle(attempt: number): string {
    const folder = join(this.#folder, `run-${attempt}`);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return folder;
  }

  #idOf(attempt: number): string {
    const uid = this.#context.pod().metadata?.uid ?? '';
    return `${uid.slice(0, 13)}-${this.name}-${attempt}`;
  }

  /** Removes this run and those before it from the runtime and the disk; their logs stay. */
  async #clean(last: number): Promise<void> {
    const { paths } = this.#context;
    // The pod's folder may have gone already, when its end is tried again.
    const entries = existsSync(this.#folder) ? readdirSync(this.#folder) : [];
    for (const entry of entries) {
      const attempt = /^run-([0-9]+)$/.exec(entry)?.[1];
      if (attempt === undefined || Number(attempt) > last) continue;
      const id = this.#idOf(Number(attempt));
      const bundle = join(this.#folder, entry);
      await deleteContainer(paths, id);
      await monitorEnded(bundle);
      rmSync(join(paths.exits, id), { force: true });
      removeRootfs(bundle);
    }
  }

  /** `begun`: its program runs, and does not only wait for the runtime's word. */
  #save(startedAt: string, begun: boolean): void {
    const saved: Saved = {
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
    };
    replaceFile(join(this.#folder, 'state.json'), JSON.stringify(saved));
  }

  #wakeAt(time: number): void {
    this.#cancelBackoff();
    const { clock } = this.#context.options;
    this.#cancelBackoff = clock.after(Math.max(0, time - clock.now()), () => this.#context.changed());
  }

  #timestamp(): string {
    return `${new Date(this.#context.options.clock.now()).toISOString().slice(0, 19)}Z`;
  }
}
