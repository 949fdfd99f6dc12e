import { join } from 'node:path';
import { timestamp } from '../kube/timestamp.ts';
import type { Container, Pod } from '../kube/types.ts';
import { describeError, hasCode, messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import { ContainerRunner } from './container-runner.ts';
import { GracePeriod } from './grace-period.ts';
import { reasonOf } from './kubelet-error.ts';
import { isPodOver, nextPodStep, type PodFacts, type PodStep, STEPS_TO_GO_ON } from './lifecycle.ts';
import type { Rejection } from './node-resources.ts';
import { type EphemeralContainer, ephemeralOf, isSidecar, stopGroups } from './pod-containers.ts';
import { PodFiles } from './pod-files.ts';
import { PodSandbox } from './pod-sandbox.ts';
import { type ContainerView, initDone, isInitialized, podStatus } from './pod-status.ts';
import { checkRuntimeClass } from './runtime-class.ts';
import type { ServedPod } from './server/served-pod.ts';
import { hasStorageLimits, watchStorage } from './storage-usage.ts';
import { unsupportedFields, unsupportedInContainer } from './supported-fields.ts';
import { Timers } from './timers.ts';
import { hasUnguarded, untilTrafficEnds } from './traffic-end.ts';
import type { RunnerContext, WorkerContext } from './worker-context.ts';

const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;
/** The grace period of a pod whose object was removed by force: upstream's kubelet gives at least one second, too. */
const MIN_GRACE_MS = 1000;
const LATE: Rejection = {
  reason: 'DeadlineExceeded',
  message: 'Pod was active on the node longer than the specified deadline',
};

/**
 * Executes the steps of one pod (lifecycle.ts): sandbox, network, volumes, init containers, containers; at its end
 * hooks, signals, and the removal of all its parts. Continues the work of an earlier agent.
 */
export class PodWorker {
  readonly uid: string;
  readonly #context: WorkerContext;
  readonly #folder: string;
  readonly #files: PodFiles;
  readonly #containers = new Map<string, ContainerRunner>();
  readonly #startTime: string;
  #pod: Pod;
  readonly #sandbox: PodSandbox;
  /** The reason for an immediate end of the pod; null if none. */
  #eviction: string | null = null;
  #failure: Rejection | null = null;
  #isRefusalReported = false;
  /** Why the pod's last step failed, for its status; empty: it has not. */
  #trouble = '';
  #goneFromApi = false;
  #terminating = false;
  #done = false;
  #dirty = false;
  #running: Promise<void> | null = null;
  #retryMs = FIRST_RETRY_MS;
  #isRetryDue = false;
  readonly #grace: GracePeriod;
  /** When the pod is looked at because of its deadline; null: no timer is set. */
  #deadlineLook: number | null = null;
  readonly #timers: Timers;
  #quiet: Promise<void> = Promise.resolve();

  constructor(context: WorkerContext, pod: Pod) {
    this.#context = context;
    this.#pod = pod;
    this.#grace = new GracePeriod(context.options.clock);
    this.#timers = new Timers(context.options.clock);
    this.uid = pod.metadata?.uid ?? '';
    this.#folder = join(context.options.stateDir, 'pods', this.uid);
    this.#files = new PodFiles({
      context,
      folder: this.#folder,
      pod: () => this.#pod,
      ips: () => this.#sandbox.ips,
      isActive: () => this.#isActive(),
      after: (ms, run) => this.#timers.after(ms, run),
    });
    this.#startTime = pod.status?.startTime ?? timestamp(context.options.clock.now());
    this.#files.savePod();
    this.#sandbox = new PodSandbox(context, this.#folder, this.uid);
    if (this.#sandbox.exists) context.resources.adopt(pod);
    const { initContainers = [], containers = [] } = pod.spec ?? {};
    for (const container of [...initContainers, ...containers, ...ephemeralOf(pod)]) {
      this.#containers.set(
        container.name,
        new ContainerRunner(this.#runnerContext(), container, this.#folder),
      );
    }
  }

  get pod(): Pod {
    return this.#pod;
  }

  /** The pod, for the node's server. */
  get served(): ServedPod {
    return {
      pod: { ...this.#pod, status: this.#status() },
      pausePid: this.#sandbox.pausePid,
      cgroup: `${this.#context.options.cgroupParent}/pod${this.uid}`,
      containerNames: [...this.#containers.keys()],
      container: (name) => this.#containers.get(name),
    };
  }

  /** Applies a newer version of the object. */
  update(pod: Pod): void {
    this.#pod = pod;
    this.#context.resources.resize(pod);
    this.#files.savePod();
    // A second deletion may have a shorter grace period, while the pod is already being stopped.
    if (pod.metadata?.deletionTimestamp !== undefined) this.#shortenGrace();
    this.wake();
  }

  /** Ends the pod, because its object is gone. */
  remove(): void {
    this.#goneFromApi = true;
    // The scheduler has already given its share to others.
    this.#context.resources.release(this.uid);
    this.#shortenGrace();
    this.wake();
  }

  /** Executes the next steps after an event. */
  wake(): void {
    if (this.#done) return;
    this.#dirty = true;
    for (const runner of this.#containers.values()) runner.checkExit();
    // While the pod is being stopped, containers that become unready or end are reported immediately.
    if (this.#terminating) this.#publish();
    // Deferred: a step's own events call this too, and must find the step running.
    this.#running ??= Promise.resolve()
      .then(() => this.#run())
      .finally(() => {
        this.#running = null;
        if (this.#dirty) this.wake();
      });
  }

  /** Retries starts that wait for an image, after one was stored. */
  retryImages(): void {
    for (const runner of this.#containers.values()) runner.retryImage();
  }

  /** Stops watching: the agent ends, the pod does not. */
  release(): void {
    this.#done = true;
    this.#timers.cancelAll();
    for (const runner of this.#containers.values()) runner.release();
  }

  async #run(): Promise<void> {
    while (this.#dirty && !this.#done) {
      this.#dirty = false;
      try {
        let step: PodStep;
        do {
          step = nextPodStep(this.#facts());
          await this.#carryOut(step);
        } while (STEPS_TO_GO_ON.has(step) || (step === 'run-containers' && this.#isOver()));
        if (step === 'terminate') return;
        this.#retryMs = FIRST_RETRY_MS;
        this.#trouble = '';
      } catch (error) {
        this.#report(error);
        if (hasCode(error, 'NodePorts')) {
          this.#reject('NodePorts', messageOf(error));
          await this.#removeSandbox();
        } else {
          this.#retryLater();
        }
      }
      this.#publish();
    }
  }

  #isLeaving(): boolean {
    return this.#goneFromApi || this.#terminating || this.#pod.metadata?.deletionTimestamp !== undefined;
  }

  /** Reports whether the pod runs and is to continue. */
  #isActive(): boolean {
    return !this.#done && !this.#isLeaving() && this.#sandbox.exists;
  }

  #facts(): PodFacts {
    const phase = this.#pod.status?.phase;
    const hasEnded = phase === 'Succeeded' || phase === 'Failed';
    return {
      isLeaving: this.#isLeaving(),
      isFinished: this.#failure !== null || (hasEnded && !this.#sandbox.exists),
      isRefused: !this.#sandbox.exists && this.#unsupported().length > 0,
      isAdmitted: this.#context.resources.holds(this.uid),
      mustFail: this.#deadlinePassed() || this.#eviction !== null,
      isOver: this.#isOver(),
      hasSandbox: this.#sandbox.exists,
      isSandboxAlive: this.#sandbox.isRunning,
      hasAddresses: this.#sandbox.ips.length > 0,
      hasFiles: this.#files.arePrepared,
    };
  }

  async #carryOut(step: PodStep): Promise<void> {
    switch (step) {
      case 'terminate':
        return await this.#terminate();
      case 'rest':
        return;
      case 'refuse':
        return this.#refuse();
      case 'admit':
        return await this.#admit();
      case 'fail':
        return await this.#fail();
      case 'retire':
        return await this.#retire();
      case 'create-sandbox':
        return await this.#createSandbox();
      case 'attach-network':
        return await this.#sandbox.attachNetwork(this.#pod);
      case 'prepare-files':
        await this.#files.prepare();
        if (hasStorageLimits(this.#pod)) this.#watchStorage();
        return;
      case 'run-containers':
        return await this.#startContainers();
    }
  }

  /**
   * Reports unsupported fields of the pod; it remains Pending, so that its controller does not replace it repeatedly.
   */
  #refuse(): void {
    const fields = this.#unsupported();
    const message = `not supported by this node: ${fields.join(', ')}; remove ${fields.length === 1 ? 'this field' : 'these fields'}`;
    for (const runner of this.#containers.values()) runner.refuse('UnsupportedField', message);
    if (this.#isRefusalReported) return;
    this.#isRefusalReported = true;
    this.#context.events.event(this.#pod, 'Warning', 'UnsupportedField', message);
  }

  #unsupported(): string[] {
    return unsupportedFields(this.#pod, (resource) => this.#context.resources.offers(resource));
  }

  async #admit(): Promise<void> {
    const { resources, options } = this.#context;
    if (resources.admit(this.#pod) === null) return;
    await options.extendedResources?.refresh();
    const rejection = this.#isLeaving() ? null : resources.admit(this.#pod);
    if (!rejection) return;
    this.#context.events.event(this.#pod, 'Warning', rejection.reason, rejection.message);
    this.#reject(rejection.reason, rejection.message);
  }

  /** Fails the pod: a bound pod does not move to another node, but its controller can create another one. */
  #reject(reason: string, message: string): void {
    this.#failure = { reason, message: `Pod was rejected: ${message}` };
  }

  /** Ends a pod whose deadline has passed, or that exceeds its limits. */
  async #fail(): Promise<void> {
    const message = this.#eviction;
    const failure = message === null ? LATE : { reason: 'Evicted', message };
    this.#failure = failure;
    const type = message === null ? 'Normal' : 'Warning';
    this.#context.events.event(this.#pod, type, failure.reason, failure.message);
    await this.#retire();
  }

  async #createSandbox(): Promise<void> {
    const failure = this.#sandbox.lose();
    // The pause process has died, and with it the network: all containers must end.
    for (const runner of this.#containers.values()) await runner.abandon();
    // Reported, and tried again later: it would end again.
    if (failure !== null) throw failure;
    await checkRuntimeClass(this.#context.client, this.#pod);
    this.#sandbox.create(this.#pod);
  }

  #watchStorage(): void {
    const { clock, logger } = this.#context.options;
    const folders = {
      volume: (name: string) => join(this.#files.volumesFolder, name),
      container: (name: string) => this.#containers.get(name)?.storage ?? [],
    };
    watchStorage(() => this.#pod, folders, {
      clock,
      after: (ms, run) => this.#timers.after(ms, run),
      isActive: () => this.#isActive(),
      exceeded: (message) => {
        this.#eviction = message;
        this.wake();
      },
      failed: (error) =>
        logger.warn({ pod: this.uid }, `failed to measure the pod's storage: ${messageOf(error)}`),
    });
  }

  /** Starts init containers one by one (sidecars keep running), then the others concurrently. */
  async #startContainers(): Promise<void> {
    const { initContainers = [], containers = [] } = this.#pod.spec ?? {};
    const initialized = isInitialized(this.#pod, this.#views());
    for (const container of initContainers) {
      if (initialized && !isSidecar(container)) continue;
      const runner = this.#runner(container);
      await runner.ensure(this.#launch(container));
      if (!initialized && !initDone(container, runner.view)) return;
    }
    await Promise.all([
      ...containers.map((container) => this.#runner(container).ensure(this.#launch(container))),
      ...ephemeralOf(this.#pod).map((container) => this.#startEphemeral(container)),
    ]);
  }

  /** Starts an ephemeral container (kubectl debug), which runs once. */
  async #startEphemeral(container: EphemeralContainer): Promise<void> {
    const runner = this.#runner(container);
    const refused = unsupportedInContainer(container);
    if (refused.length > 0) {
      runner.refuse('UnsupportedField', `not supported by this node: ${refused.join(', ')}`);
      return;
    }
    const launch = this.#launch(container);
    const target = container.targetContainerName;
    if (!target) return await runner.ensure(launch);
    const pid = this.#containers.get(target)?.pid ?? null;
    if (pid !== null) await runner.ensure({ ...launch, pidNamespace: `/proc/${pid}/ns/pid` });
    else runner.refuse('ContainerCreating', `container ${JSON.stringify(target)} is not running`);
  }

  #isOver(): boolean {
    return isPodOver(this.#pod, (container) => this.#runner(container).view);
  }

  #deadlinePassed(): boolean {
    const seconds = this.#pod.spec?.activeDeadlineSeconds;
    if (seconds === undefined) return false;
    const now = this.#context.options.clock.now();
    const deadline = Date.parse(this.#startTime) + seconds * 1000;
    if (deadline <= now) return true;
    // The deadline may have become earlier; and a timer may fire a millisecond before its time.
    if (this.#deadlineLook === null || deadline < this.#deadlineLook) {
      this.#deadlineLook = deadline;
      this.#timers.after(deadline - now, () => {
        this.#deadlineLook = null;
        this.wake();
      });
    }
    return false;
  }

  /** Ends remaining containers of a finished pod and releases its address and namespaces; its logs remain. */
  async #retire(): Promise<void> {
    await this.#stopAll((this.#pod.spec?.terminationGracePeriodSeconds ?? 30) * 1000);
    for (const runner of this.#containers.values()) await runner.dispose();
    this.#publish();
    await this.#removeSandbox();
  }

  async #removeSandbox(): Promise<void> {
    await this.#sandbox.remove(this.#pod);
    this.#files.release();
  }

  #launch(container: Container): Launch {
    const sharesProcesses = this.#pod.spec?.shareProcessNamespace === true;
    return {
      pod: this.#pod,
      container,
      pausePid: this.#sandbox.pausePid ?? 0,
      ips: this.#sandbox.ips,
      ...(sharesProcesses ? { pidNamespace: this.#sandbox.pidNamespace } : {}),
      ...this.#files.launch,
    };
  }

  /** Ends the pod gracefully: hooks, SIGTERM, grace period, SIGKILL; then removes all its parts. */
  async #terminate(): Promise<void> {
    const { options, events } = this.#context;
    const { clock } = options;
    const first = !this.#terminating;
    this.#terminating = true;
    this.#shortenGrace();
    if (first) {
      this.#timers.cancelAll();
      this.#isRetryDue = false;
      for (const runner of this.#containers.values()) {
        if (runner.isRunning)
          events.event(this.#pod, 'Normal', 'Killing', `Stopping container ${runner.name}`);
      }
      this.#publish();
      const { endsAt } = this.#grace;
      this.#quiet = untilTrafficEnds({
        graceMs: endsAt - clock.now(),
        clock,
        traffic: () => options.trafficOf?.(this.#sandbox.ips) ?? 'none',
        isUrgent: () => this.#goneFromApi || this.#done || this.#grace.endsAt < endsAt,
      }).catch((error: unknown) => this.#report(error));
      // A preStop hook runs meanwhile.
      if (hasUnguarded(this.#pod)) await this.#quiet;
      // Released concurrently: the next agent stops the pod.
      if (this.#done) return;
    }
    await this.#stopAll();
    for (const runner of this.#containers.values()) await runner.dispose();
    await this.#removeSandbox();
    if (!this.#goneFromApi) this.#publish();
    // The object is deleted only after all parts of the pod have been removed.
    await this.#files.remove();
    if (!this.#goneFromApi) await this.#context.finalize(this.#pod);
    this.#done = true;
  }

  /** Stops all containers; `graceMs` limits the time of each in addition to the pod's grace period. */
  async #stopAll(graceMs = Number.POSITIVE_INFINITY): Promise<void> {
    const stop = (container: Container) =>
      this.#runner(container).stop(this.#context.options.clock.now() + graceMs, this.#sandbox.address);
    for (const group of stopGroups(this.#pod)) await Promise.all(group.map(stop));
  }

  /** Applies the grace period of the latest deletion. */
  #shortenGrace(): void {
    const { metadata, spec } = this.#pod;
    const seconds = this.#goneFromApi
      ? 0
      : (metadata?.deletionGracePeriodSeconds ?? spec?.terminationGracePeriodSeconds ?? 30);
    this.#grace.shorten(Math.max(MIN_GRACE_MS, seconds * 1000));
  }

  #runner(container: Container): ContainerRunner {
    const found = this.#containers.get(container.name);
    if (found) return found;
    const runner = new ContainerRunner(this.#runnerContext(), container, this.#folder);
    this.#containers.set(container.name, runner);
    return runner;
  }

  #runnerContext(): RunnerContext {
    return {
      ...this.#context,
      pod: () => this.#pod,
      address: () => this.#sandbox.address,
      changed: () => this.wake(),
      grace: this.#grace,
      quiet: () => this.#quiet,
    };
  }

  #report(error: unknown): void {
    const { options, events } = this.#context;
    const reason = reasonOf(error, 'FailedCreatePodSandBox');
    const text = describeError(error);
    this.#trouble = `${reason}: ${text}`;
    events.event(this.#pod, 'Warning', reason, text);
    options.logger.warn(
      { pod: `${this.#pod.metadata?.namespace}/${this.#pod.metadata?.name}`, err: error },
      messageOf(error),
    );
  }

  #publish(): void {
    if (this.#goneFromApi) return;
    const status = this.#status();
    // Before the scheduler sees that the pod has ended, and binds another one.
    if (status.phase === 'Succeeded' || status.phase === 'Failed') this.#context.resources.release(this.uid);
    this.#context.publish(this.#pod, status);
  }

  #status(): NonNullable<Pod['status']> {
    return podStatus({
      pod: this.#pod,
      containers: this.#views(),
      ips: this.#sandbox.ips,
      hostIps: [...this.#context.options.nodeAddresses],
      sandboxReady: this.#sandbox.isReady,
      isTerminating: this.#terminating,
      allocatable: this.#context.allocatable,
      startTime: this.#startTime,
      failure: this.#failure,
      trouble: this.#trouble,
      now: timestamp(this.#context.options.clock.now()),
    });
  }

  #views(): Map<string, ContainerView> {
    return new Map([...this.#containers].map(([name, runner]) => [name, runner.view]));
  }

  /** Retries a failed step; events that wake the pod meanwhile do not add further retries. */
  #retryLater(): void {
    if (this.#isRetryDue) return;
    this.#isRetryDue = true;
    this.#timers.after(this.#retryMs, () => {
      this.#isRetryDue = false;
      this.wake();
    });
    this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
  }
}
