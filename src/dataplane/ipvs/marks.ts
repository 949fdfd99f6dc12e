import { FairleadError } from '../../lib/errors.ts';

/**
 * Packet marks of virtual servers. One rule sets a mark directly before IPVS and another clears it directly after, so
 * other programs' rules do not see it.
 */
export interface MarkScheme extends NumberScheme {
  /** The bits that identify the mode's marks, and their value. */
  readonly prefixMask: number;
  readonly prefix: number;
  readonly masqueradeBit: number;
  isOurs(mark: number): boolean;
}

/** kube-proxy's default. */
export const DEFAULT_MASQUERADE_BIT = 14;

const PREFIX = 0xfa000000;
const PREFIX_MASK = 0xff000000;
/** Bits of kube-proxy and the kubelet: older kubelets' rules drop packets whose mark has bit 15. */
const AVOIDED = [14, 15];

/**
 * Returns the marks for a masquerade bit. `masqueradeBit`: the number of the bit that is set in marks of
 * servers whose packets are masqueraded.
 */
export function markScheme(masqueradeBit: number): MarkScheme {
  const bit = (1 << masqueradeBit) >>> 0;
  const prefixMask = (PREFIX_MASK & ~bit) >>> 0;
  const prefix = (PREFIX & prefixMask) >>> 0;
  const places = Array.from({ length: 24 }, (_, i) => i).filter(
    (i) => i !== masqueradeBit && !AVOIDED.includes(i),
  );
  return {
    prefixMask,
    prefix,
    masqueradeBit: bit,
    of(id, masquerade) {
      let mark = prefix;
      for (const [i, place] of places.entries()) if (id & (1 << i)) mark |= 1 << place;
      return (masquerade ? mark | bit : mark) >>> 0;
    },
    isOurs: (mark) => (mark & prefixMask) >>> 0 === prefix,
    fits: (mark, masquerade) => ((mark & bit) !== 0) === masquerade,
    // The largest number is reserved for the probe.
    largestId: 2 ** places.length - 2,
    idOf(mark) {
      let id = 0;
      for (const [i, place] of places.entries()) if (mark & (1 << place)) id |= 1 << i;
      return id;
    },
  };
}

/** Ports of the alias address. */
export const PORTS: NumberScheme = {
  of: (id) => id,
  idOf: (port) => port,
  fits: () => true,
  largestId: 65_535,
};

/** Numbers that identify virtual servers: marks, or ports of the alias address. */
export interface NumberScheme {
  of(id: number, masquerade: boolean): number;
  idOf(number: number): number;
  /** Whether the number is valid for a server with, or without, masquerading. */
  fits(number: number, masquerade: boolean): boolean;
  readonly largestId: number;
}

/**
 * Assigns numbers to holders: combinations of a frontend, a pool and masquerading ("KEY local masquerade").
 * A holder keeps its number until it is removed.
 */
export class NumberTable {
  readonly #scheme: NumberScheme;
  readonly #numbers = new Map<string, number>();
  readonly #used = new Set<number>();
  /** Numbers that holders had in the kernel before this process started. */
  readonly #restored = new Map<string, number>();
  #next = 1;

  constructor(scheme: NumberScheme) {
    this.#scheme = scheme;
  }

  /** Records the number that a holder had in an earlier run. */
  restore(holder: string, number: number): void {
    this.#restored.set(holder, number);
    this.reserve(number);
  }

  /** Marks the number of a server in the kernel as used. */
  reserve(number: number): void {
    this.#used.add(this.#scheme.idOf(number));
  }

  /**
   * Returns the holder's number, assigned if necessary. Throws FairleadError (ENOSPC) if all numbers are in
   * use.
   */
  take(holder: string, masquerade: boolean): number {
    const known = this.#numbers.get(holder);
    if (known !== undefined) return known;
    const before = this.#restored.get(holder);
    this.#restored.delete(holder);
    if (before !== undefined && this.#scheme.fits(before, masquerade)) {
      this.#numbers.set(holder, before);
      return before;
    }
    while (this.#used.has(this.#next)) this.#next++;
    if (this.#next > this.#scheme.largestId) {
      throw new FairleadError(`all ${this.#scheme.largestId} numbers for virtual servers are in use`, {
        op: 'program IPVS',
        code: 'ENOSPC',
        object: holder,
      });
    }
    const number = this.#scheme.of(this.#next, masquerade);
    this.#used.add(this.#next);
    this.#numbers.set(holder, number);
    return number;
  }

  /** Removes a holder; its number stays in use until `free`. */
  forget(holder: string): void {
    this.#numbers.delete(holder);
  }

  /** Frees a number that no server uses any longer. */
  free(number: number): void {
    const id = this.#scheme.idOf(number);
    this.#used.delete(id);
    if (id < this.#next) this.#next = id;
  }
}
