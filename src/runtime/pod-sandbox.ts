import type { Pod } from '../kube/types.ts';
import { hostPortsOf } from './pod-containers.ts';
import { type Sandbox, sharedPidNamespace } from './sandbox.ts';
import type { WorkerContext } from './worker-context.ts';

/** The namespaces and addresses of one pod. */
export class PodSandbox {
  readonly #context: Pick<WorkerContext, 'options' | 'processes'>;
  readonly #folder: string;
  readonly #uid: string;
  #sandbox: Sandbox | null;
  #ips: readonly string[] = [];

  /** Adopts the sandbox of an earlier agent. `folder`: the pod's. */
  constructor(context: Pick<WorkerContext, 'options' | 'processes'>, folder: string, uid: string) {
    this.#context = context;
    this.#folder = folder;
    this.#uid = uid;
    this.#sandbox = context.processes.adoptSandbox(folder);
    if (this.#sandbox) this.#ips = context.options.network.addresses(uid) ?? context.options.nodeAddresses;
  }

  get exists(): boolean {
    return this.#sandbox !== null;
  }

  /** The process that holds its namespaces is running. */
  get isRunning(): boolean {
    return this.#sandbox !== null && this.#context.processes.isRunning(this.#sandbox.pause);
  }

  get ips(): readonly string[] {
    return this.#ips;
  }

  /** The address of the pod's ports. */
  get address(): string {
    return this.#ips[0] ?? '127.0.0.1';
  }

  /** Its namespaces and addresses exist. */
  get isReady(): boolean {
    return this.#sandbox !== null && this.#ips.length > 0;
  }

  get pausePid(): number | null {
    return this.#sandbox?.pause.pid ?? null;
  }

  /** The process namespace that the pod's containers share. */
  get pidNamespace(): string {
    return sharedPidNamespace(this.pausePid ?? 0);
  }

  /** Records that its pause process has died, and with it the network. Returns its failure; null: it gave no reason. */
  lose(): Error | null {
    const failure = this.#sandbox === null ? null : this.#context.processes.sandboxFailure(this.#folder);
    this.#sandbox = null;
    return failure;
  }

  create(pod: Pod): void {
    this.#sandbox = this.#context.processes.createSandbox(this.#folder, pod);
    this.#ips = [];
  }

  async attachNetwork(pod: Pod): Promise<void> {
    const { network, nodeAddresses } = this.#context.options;
    if (pod.spec?.hostNetwork) {
      this.#ips = nodeAddresses;
      return;
    }
    const { namespace = '', name = '' } = pod.metadata ?? {};
    const attached = { uid: this.#uid, namespace, name, hostPorts: hostPortsOf(pod) };
    try {
      this.#ips = (await network.attach(attached, { pid: this.pausePid ?? 0 })).ips;
    } catch (error) {
      if (!this.isRunning) throw this.lose() ?? error;
      // A pause process that is ending has lost its namespaces, but is still a process.
      throw this.#context.processes.sandboxFailure(this.#folder) ?? error;
    }
  }

  /** Releases the addresses, ends the namespaces and removes the control group. */
  async remove(pod: Pod): Promise<void> {
    if (!pod.spec?.hostNetwork) await this.#context.options.network.detach(this.#uid);
    this.#context.processes.removeSandbox(this.#folder);
    this.#sandbox = null;
    await this.#context.processes.removeGroup(this.#uid);
  }
}
