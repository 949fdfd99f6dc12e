import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { timestamp } from '../kube/timestamp.ts';
import type { Container, Pod } from '../kube/types.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import { ContainerRunner } from './container-runner.ts';
import { removeControlGroup } from './control-groups.ts';
import { kernelHostname } from './name-resolution.ts';
import { type EphemeralContainer, ephemeralOf, hostPortsOf, isOver } from './pod-containers.ts';
import { PodFiles } from './pod-files.ts';
import { type ContainerView, initDone, isInitialized, isSidecar, podStatus } from './pod-status.ts';
import { isAlive } from './process-identity.ts';
import { adoptSandbox, createSandbox, removeSandbox, type Sandbox } from './sandbox.ts';
import type { ServedPod } from './server/served-pod.ts';
import { hasStorageLimits, watchStorage } from './storage-usage.ts';
import { unsupportedFields, unsupportedInContainer } from './supported-fields.ts';
import type { RunnerContext, WorkerContext } from './worker-context.ts';

const FIRST_RETRY_MS = 100;
const MOST_RETRY_MS = 30_000;
/**
 * Brings one pod to what its object asks for, one step after the other: sandbox, network, volumes, init containers,
 * containers; at its end, hooks, signals, and the removal of everything. Takes up where an earlier agent stopped.
 */
export class PodWorker {
  readonly uid: string;
  readonly #context: WorkerContext;
  readonly #folder: string;
  readonly #files: PodFiles;
  readonly #containers = new Map<string, ContainerRunner>();
  readonly #startTime: string;
  #pod: Pod;
  #sandbox: Sandbox | null = null;
  #ips: string[] = [];
  /** Why the pod must go at once. */
  #eviction: string | null = null;
  #failure: { reason: string; message: string } | null = null;
  #goneFromApi = false;
  #terminating = false;
  #done = false;
  #dirty = false;
  #running: Promise<void> | null = null;
  #retryMs = FIRST_RETRY_MS;
  #graceDeadline = Number.POSITIVE_INFINITY;
  #deadlineSet = false;
  #cancelTimers: (() => void)[] = [];

  constructor(context: WorkerContext, pod: Pod) {
    this.#context = context;
    this.#pod = pod;
    this.uid = pod.metadata?.uid ?? '';
    this.#folder = join(context.options.stateDir, 'pods', this.uid);
    this.#files = new PodFiles({
      context,
      folder: this.#folder,
      pod: () => this.#pod,
      ips: () => this.#ips,
      isActive: () => this.#isActive(),
      after: (ms, run) => this.#timer(ms, run),
    });
    this.#startTime = pod.status?.startTime ?? timestamp(context.options.clock.now());
    this.#files.savePod();
    this.#sandbox = adoptSandbox(this.#folder);
    if (this.#sandbox) this.#ips = context.options.network.addresses(this.uid) ?? this.#hostIps();
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

  /** The pod as the node's server shows it. */
  get served(): ServedPod {
    return {
      pod: { ...this.#pod, status: this.#status() },
      pausePid: this.#sandbox?.pause.pid ?? null,
      cgroup: `${this.#context.options.cgroupParent}/pod${this.uid}`,
      containerNames: [...this.#containers.keys()],
      container: (name) => this.#containers.get(name),
    };
  }

  /** Takes note of a newer object. */
  update(pod: Pod): void {
    this.#pod = pod;
    this.#files.savePod();
    this.wake();
  }

  /** The object is gone: whatever runs is ended. */
  remove(): void {
    this.#goneFromApi = true;
    this.wake();
  }

  /** Something has happened: look at everything again. */
  wake(): void {
    if (this.#done) return;
    this.#dirty = true;
    for (const runner of this.#containers.values()) runner.nudge();
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      if (this.#dirty) this.wake();
    });
  }

  /** An image has come to the node. */
  retryImages(): void {
    for (const runner of this.#containers.values()) runner.retryImage();
  }

  /** Lets go without touching what runs: the agent ends, the pod does not. */
  release(): void {
    this.#done = true;
    for (const cancel of this.#cancelTimers.splice(0)) cancel();
    for (const runner of this.#containers.values()) runner.release();
  }

  async #run(): Promise<void> {
    while (this.#dirty && !this.#done) {
      this.#dirty = false;
      try {
        if (this.#isLeaving()) {
          await this.#terminate();
          return;
        }
        await this.#advance();
        this.#retryMs = FIRST_RETRY_MS;
      } catch (error) {
        this.#report(error);
        if (hasCode(error, 'NodePorts')) {
          // Nobody moves a pod that is bound: who bound it here can make another one.
          this.#failure = { reason: 'NodePorts', message: `Pod was rejected: ${messageOf(error)}` };
          await this.#removeSandbox();
        } else {
          this.#later(this.#retryMs);
          this.#retryMs = Math.min(this.#retryMs * 2, MOST_RETRY_MS);
        }
      }
      this.#publish();
    }
  }

  #isLeaving(): boolean {
    return this.#goneFromApi || this.#terminating || this.#pod.metadata?.deletionTimestamp !== undefined;
  }

  /** It runs and is to go on. */
  #isActive(): boolean {
    return !this.#done && !this.#isLeaving() && this.#sandbox !== null;
  }

  /** Every step that can be taken now towards a running pod. */
  async #advance(): Promise<void> {
    const { options, events } = this.#context;
    const phase = this.#pod.status?.phase;
    if (this.#failure || ((phase === 'Succeeded' || phase === 'Failed') && !this.#sandbox)) return;
    const refused = unsupportedFields(this.#pod);
    if (refused.length > 0) {
      const message = `not supported by this node: ${refused.join(', ')}; remove ${refused.length === 1 ? 'this field' : 'these fields'}`;
      this.#failure = { reason: 'UnsupportedField', message };
      events.event(this.#pod, 'Warning', 'UnsupportedField', message);
      return;
    }
    if (!this.#sandbox && this.#isOver()) return;
    if (this.#deadlinePassed()) {
      const message = 'Pod was active on the node longer than the specified deadline';
      this.#failure = { reason: 'DeadlineExceeded', message };
      events.event(this.#pod, 'Normal', 'DeadlineExceeded', message);
      await this.#retire();
      return;
    }
    if (this.#eviction !== null) {
      this.#failure = { reason: 'Evicted', message: this.#eviction };
      events.event(this.#pod, 'Warning', 'Evicted', this.#eviction);
      await this.#retire();
      return;
    }
    if (this.#sandbox && !isAlive(this.#sandbox.pause)) this.#sandbox = null;
    if (!this.#sandbox) {
      // The pause process has died, and with it the network: nothing that ran inside can stay.
      for (const runner of this.#containers.values()) await runner.abandon();
      this.#sandbox = createSandbox(
        this.#folder,
        {
          hostname: kernelHostname(this.#pod, options.clusterDomain),
          sysctls: this.#pod.spec?.securityContext?.sysctls ?? [],
          hostNetwork: this.#pod.spec?.hostNetwork === true,
        },
        new Date(options.clock.now()),
      );
      this.#ips = [];
    }
    if (this.#ips.length === 0) {
      const { namespace = '', name = '' } = this.#pod.metadata ?? {};
      this.#ips = this.#pod.spec?.hostNetwork
        ? this.#hostIps()
        : (
            await options.network.attach(
              { uid: this.uid, namespace, name, hostPorts: hostPortsOf(this.#pod) },
              { pid: this.#sandbox.pause.pid },
            )
          ).ips;
    }
    if (!this.#files.arePrepared) {
      await this.#files.prepare();
      if (hasStorageLimits(this.#pod)) this.#watchStorage();
    }
    await this.#startContainers();
  }

  #watchStorage(): void {
    const { clock, logger } = this.#context.options;
    const folders = {
      volume: (name: string) => join(this.#files.volumesFolder, name),
      container: (name: string) => this.#containers.get(name)?.storage ?? [],
    };
    watchStorage(() => this.#pod, folders, {
      clock,
      after: (ms, run) => this.#timer(ms, run),
      isActive: () => this.#isActive(),
      exceeded: (message) => {
        this.#eviction = message;
        this.wake();
      },
      failed: (error) =>
        logger.warn({ pod: this.uid }, `cannot measure the pod's storage: ${messageOf(error)}`),
    });
  }

  /** Init containers one by one (sidecars stay), then the others all at once. */
  async #startContainers(): Promise<void> {
    const spec = this.#pod.spec;
    const policy = spec?.restartPolicy ?? 'Always';
    const initialized = isInitialized(this.#pod, this.#views());
    for (const container of spec?.initContainers ?? []) {
      if (initialized && !isSidecar(container)) continue;
      const runner = this.#runner(container);
      await runner.ensure(
        isSidecar(container) ? 'Always' : policy === 'Always' ? 'OnFailure' : policy,
        this.#launch(container),
      );
      if (!initialized && !initDone(container, runner.view)) {
        if (this.#isOver()) await this.#retire();
        return;
      }
    }
    const main = spec?.containers ?? [];
    await Promise.all([
      ...main.map((container) => this.#runner(container).ensure(policy, this.#launch(container))),
      ...ephemeralOf(this.#pod).map((container) => this.#startEphemeral(container)),
    ]);
    if (this.#isOver()) await this.#retire();
  }

  /** Containers that somebody has added to look into the pod (kubectl debug) run once, beside the others. */
  async #startEphemeral(container: EphemeralContainer): Promise<void> {
    const runner = this.#runner(container);
    const refused = unsupportedInContainer(container);
    if (refused.length > 0) {
      runner.refuse('UnsupportedField', `not supported by this node: ${refused.join(', ')}`);
      return;
    }
    const launch = this.#launch(container);
    const target = container.targetContainerName;
    if (!target) return await runner.ensure('Never', launch);
    const pid = this.#containers.get(target)?.pid ?? null;
    if (pid !== null) await runner.ensure('Never', { ...launch, pidNamespace: `/proc/${pid}/ns/pid` });
    else runner.refuse('ContainerCreating', `container ${JSON.stringify(target)} does not run`);
  }

  #isOver(): boolean {
    return isOver(this.#pod, (container) => this.#runner(container).view.phase);
  }

  #deadlinePassed(): boolean {
    const seconds = this.#pod.spec?.activeDeadlineSeconds;
    if (seconds === undefined) return false;
    const left = Date.parse(this.#startTime) + seconds * 1000 - this.#context.options.clock.now();
    if (left <= 0) return true;
    if (!this.#deadlineSet) this.#later(left);
    this.#deadlineSet = true;
    return false;
  }

  /** The pod has run its course: what still runs of it ends; its address and namespaces go, its logs stay. */
  async #retire(): Promise<void> {
    await this.#stopAll(this.#pod.spec?.terminationGracePeriodSeconds ?? 30, 'all');
    for (const runner of this.#containers.values()) await runner.dispose();
    this.#publish();
    await this.#removeSandbox();
  }

  async #removeSandbox(): Promise<void> {
    if (!this.#pod.spec?.hostNetwork) await this.#context.options.network.detach(this.uid);
    removeSandbox(this.#folder);
    this.#sandbox = null;
    const { groups, options } = this.#context;
    if (groups) await removeControlGroup(groups, `${options.cgroupParent}/pod${this.uid}`);
    this.#files.release();
  }

  #launch(container: Container): Launch {
    return {
      pod: this.#pod,
      container,
      pausePid: this.#sandbox?.pause.pid ?? 0,
      ips: this.#ips,
      ...this.#files.launch,
    };
  }

  /** Ends the pod in order: hooks, SIGTERM, time to finish, SIGKILL; then everything of it is removed. */
  async #terminate(): Promise<void> {
    const { options, events } = this.#context;
    const { clock } = options;
    const first = !this.#terminating;
    this.#terminating = true;
    const grace =
      this.#pod.metadata?.deletionGracePeriodSeconds ?? this.#pod.spec?.terminationGracePeriodSeconds ?? 30;
    this.#graceDeadline = Math.min(this.#graceDeadline, clock.now() + grace * 1000);
    if (first) {
      for (const cancel of this.#cancelTimers.splice(0)) cancel();
      for (const runner of this.#containers.values()) {
        if (runner.isRunning)
          events.event(this.#pod, 'Normal', 'Killing', `Stopping container ${runner.name}`);
      }
      this.#publish();
    }
    await this.#stopAll(grace, 'all');
    for (const runner of this.#containers.values()) await runner.dispose();
    await this.#removeSandbox();
    if (!this.#goneFromApi) this.#publish();
    // When its object has gone, nothing of the pod is left here.
    rmSync(this.#folder, { recursive: true, force: true });
    if (!this.#goneFromApi) await this.#context.finalize(this.#pod);
    this.#done = true;
  }

  async #stopAll(graceSeconds: number, which: 'all' | 'sidecars'): Promise<void> {
    const init = this.#pod.spec?.initContainers ?? [];
    const main = which === 'all' ? [...(this.#pod.spec?.containers ?? []), ...ephemeralOf(this.#pod)] : [];
    const deadline = () =>
      Math.min(this.#graceDeadline, this.#context.options.clock.now() + graceSeconds * 1000);
    await Promise.all([
      ...main.map((container) => this.#runner(container).stop(deadline(), this.#target())),
      ...init
        .filter((one) => !isSidecar(one))
        .map((one) => this.#runner(one).stop(deadline(), this.#target())),
    ]);
    // Sidecars outlive what they serve, and go in the reverse of their order (KEP-753).
    for (const container of init.filter(isSidecar).reverse())
      await this.#runner(container).stop(deadline(), this.#target());
  }

  #target(): string {
    return this.#ips[0] ?? '127.0.0.1';
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
      address: () => this.#target(),
      changed: () => this.wake(),
      deadline: () => this.#graceDeadline,
    };
  }

  #report(error: unknown): void {
    const { options, events } = this.#context;
    const reason =
      error instanceof FairleadError && /^[A-Z][a-zA-Z]+$/.test(error.code)
        ? error.code
        : 'FailedCreatePodSandBox';
    events.event(this.#pod, 'Warning', reason, messageOf(error));
    options.logger.warn(
      { pod: `${this.#pod.metadata?.namespace}/${this.#pod.metadata?.name}`, err: error },
      messageOf(error),
    );
  }

  #publish(): void {
    if (this.#goneFromApi) return;
    this.#context.publish(this.#pod, this.#status());
  }

  #status(): NonNullable<Pod['status']> {
    return podStatus({
      pod: this.#pod,
      containers: this.#views(),
      ips: this.#ips,
      hostIps: this.#hostIps(),
      sandboxReady: this.#sandbox !== null && this.#ips.length > 0,
      startTime: this.#startTime,
      failure: this.#failure,
      now: timestamp(this.#context.options.clock.now()),
    });
  }

  #views(): Map<string, ContainerView> {
    return new Map([...this.#containers].map(([name, runner]) => [name, runner.view]));
  }

  #hostIps(): string[] {
    return [...this.#context.options.nodeAddresses];
  }

  #later(ms: number): void {
    this.#timer(ms, () => this.wake());
  }

  #timer(ms: number, run: () => void): void {
    const cancel = this.#context.options.clock.after(ms, () => {
      this.#cancelTimers = this.#cancelTimers.filter((other) => other !== cancel);
      run();
    });
    this.#cancelTimers.push(cancel);
  }
}
