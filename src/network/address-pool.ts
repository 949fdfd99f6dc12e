import { addressAt, type Cidr, cidrSize, indexInCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** The number of addresses of an IPv6 network that are allocated before the first is reused. */
const MAX_SIZE = 1n << 32n;

/**
 * Allocates addresses of one network in turn: a released address is reused only after all others, so that traffic to its
 * previous owner does not reach the next. The network's own address, the gateway (number 1) and an IPv4 network's
 * broadcast address are never allocated.
 */
export class AddressPool {
  readonly cidr: Cidr;
  readonly #taken = new Set<bigint>();
  /** One past the last address that may be allocated. */
  readonly #end: bigint;
  #last = FIRST - 1n;

  constructor(cidr: Cidr) {
    this.cidr = cidr;
    const size = cidrSize(cidr) - (cidr.family === 'ipv4' ? 1n : 0n);
    this.#end = size < MAX_SIZE ? size : MAX_SIZE;
  }

  /** The number of addresses in the pool. */
  get size(): bigint {
    return this.#end > FIRST ? this.#end - FIRST : 0n;
  }

  get taken(): number {
    return this.#taken.size;
  }

  /** Allocates the next free address. Throws FairleadError (addresses-exhausted) if there is none. */
  take(): string {
    if (BigInt(this.#taken.size) >= this.size) {
      throw new FairleadError(`all ${this.size} addresses of ${this.cidr.text} are in use`, {
        op: 'allocate pod address',
        code: 'addresses-exhausted',
        object: this.cidr.text,
        hint: 'delete pods on this node, or configure larger pod networks for nodes',
      });
    }
    let index = this.#last;
    do {
      index = index + 1n < this.#end ? index + 1n : FIRST;
    } while (this.#taken.has(index));
    this.#taken.add(index);
    this.#last = index;
    return addressAt(this.cidr, index);
  }

  /** Marks an address as in use and as the last allocated one; returns false if it is not in this pool. */
  claim(address: string): boolean {
    const index = indexInCidr(this.cidr, address);
    if (index === null || index < FIRST || index >= this.#end) return false;
    this.#taken.add(index);
    this.#last = index;
    return true;
  }

  release(address: string): void {
    const index = indexInCidr(this.cidr, address);
    if (index !== null) this.#taken.delete(index);
  }
}

const FIRST = 2n;
