import { isExtendedResource } from '../kube/extended-resources.ts';
import { type Amounts, nano } from '../kube/quota/amounts.ts';
import { podAmounts } from '../kube/quota/pod-resources.ts';
import type { Pod } from '../kube/types.ts';

/** Why a node does not run a pod, as in a status. */
export interface Rejection {
  readonly reason: string;
  readonly message: string;
}

const UNIT = 1_000_000_000n;
const MILLI = 1_000_000n;

/** The resources of one node, and the pods that have been admitted to a share of them. */
export class NodeResources {
  readonly #own: Amounts;
  readonly #extended: () => Amounts;
  readonly #pods = new Map<string, ReadonlyMap<string, bigint>>();
  readonly #used = new Map<string, bigint>();

  /** `extended`: the extended resources of the Node object, evaluated for each pod. */
  constructor(own: Amounts, extended: () => Amounts = () => ({})) {
    this.#own = own;
    this.#extended = extended;
  }

  /** Reports whether the node has a resource, even if none of it is left. */
  offers(name: string): boolean {
    return this.#capacity(name) !== undefined;
  }

  /** Reports whether the pod was admitted, and not yet released. */
  holds(uid: string): boolean {
    return this.#pods.has(uid);
  }

  /** Reserves what a pod requests; returns why it cannot be admitted, or null (upstream's predicateAdmitHandler). */
  admit(pod: Pod): Rejection | null {
    const wanted = requestsOf(pod);
    for (const [name, amount] of wanted) {
      const capacity = this.#capacity(name);
      // As upstream: a scheduler may count resources of the whole cluster, which no node has.
      if (capacity === undefined && isExtendedResource(name)) continue;
      const used = this.#used.get(name) ?? 0n;
      if (amount > 0n && amount > (capacity ?? 0n) - used)
        return shortage(name, amount, used, capacity ?? 0n);
    }
    this.#reserve(pod, wanted);
    return null;
  }

  /** Reserves what a pod requests that is already running. */
  adopt(pod: Pod): void {
    this.#reserve(pod, requestsOf(pod));
  }

  /** Applies the changed requests of an admitted pod; a resize that exceeds the whole node is not applied. */
  resize(pod: Pod): void {
    if (!this.holds(uidOf(pod))) return;
    const wanted = requestsOf(pod);
    const fits = [...wanted].every(([name, amount]) => amount <= (this.#capacity(name) ?? amount));
    if (fits) this.#reserve(pod, wanted);
  }

  /** Returns the share of a pod that has ended. */
  release(uid: string): void {
    for (const [name, amount] of this.#pods.get(uid) ?? [])
      this.#used.set(name, (this.#used.get(name) ?? 0n) - amount);
    this.#pods.delete(uid);
  }

  #reserve(pod: Pod, wanted: ReadonlyMap<string, bigint>): void {
    this.release(uidOf(pod));
    this.#pods.set(uidOf(pod), wanted);
    for (const [name, amount] of wanted) this.#used.set(name, (this.#used.get(name) ?? 0n) + amount);
  }

  #capacity(name: string): bigint | undefined {
    const amount = this.#own[name] ?? (isExtendedResource(name) ? this.#extended()[name] : undefined);
    return amount === undefined ? undefined : nano(amount);
  }
}

const uidOf = (pod: Pod): string => pod.metadata?.uid ?? '';

/** Returns a pod's requests, in the order in which they are checked. */
function requestsOf(pod: Pod): Map<string, bigint> {
  const { cpu = '0', memory = '0', ...others } = podAmounts(pod, 'requests');
  const all = { pods: '1', cpu, memory, ...others };
  return new Map(Object.entries(all).map(([name, amount]) => [name, nano(amount)]));
}

function shortage(name: string, amount: bigint, used: bigint, capacity: bigint): Rejection {
  const unit = name === 'cpu' ? MILLI : UNIT;
  const whole = (value: bigint) => (value + unit - 1n) / unit;
  return {
    reason: `OutOf${name}`,
    message: `Node didn't have enough resource: ${name}, requested: ${whole(amount)}, used: ${whole(used)}, capacity: ${whole(capacity)}`,
  };
}
