/**
 * Packet marks of virtual servers that are picked by a mark. Such a mark lives from the rule that sets it to the one
 * that clears it, on both sides of IPVS and before any other program's rules: nobody else sees it.
 */
export interface MarkScheme {
  /** Bits that tell our marks from others', and their value. */
  readonly prefixMask: number;
  readonly prefix: number;
  readonly masqueradeBit: number;
  of(id: number, masquerade: boolean): number;
  isOurs(mark: number): boolean;
  masquerades(mark: number): boolean;
  idOf(mark: number): number;
}

const PREFIX = 0xfa000000;
const PREFIX_MASK = 0xff000000;
/** kube-proxy's and the kubelet's: a packet whose mark has bit 15 is dropped by older kubelets' rules. */
const AVOIDED = [14, 15];

/** `masqueradeBit`: number of the bit that means "masquerade", which a mark has if its server's packets are to be. */
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
    masquerades: (mark) => (mark & bit) !== 0,
    idOf(mark) {
      let id = 0;
      for (const [i, place] of places.entries()) if (mark & (1 << place)) id |= 1 << i;
      return id;
    },
  };
}

/** Gives marks to slots ("frontend cluster masquerade"); a slot keeps its mark until it is freed. */
export class MarkTable {
  readonly scheme: MarkScheme;
  readonly #slots = new Map<string, number>();
  readonly #used = new Set<number>();
  /** Marks for slots that the kernel had before this process started. */
  readonly #remembered = new Map<string, number>();
  #next = 1;

  constructor(scheme: MarkScheme) {
    this.scheme = scheme;
  }

  /** The slot had this mark in an earlier run, and may still be wanted. */
  remember(slot: string, mark: number): void {
    this.#remembered.set(slot, mark);
    this.#used.add(this.scheme.idOf(mark));
  }

  /** Somebody's packets may still carry this mark. */
  reserve(mark: number): void {
    this.#used.add(this.scheme.idOf(mark));
  }

  take(slot: string, masquerade: boolean): number {
    const known = this.#slots.get(slot);
    if (known !== undefined) return known;
    const before = this.#remembered.get(slot);
    this.#remembered.delete(slot);
    if (before !== undefined && this.scheme.masquerades(before) === masquerade) {
      this.#slots.set(slot, before);
      return before;
    }
    while (this.#used.has(this.#next)) this.#next++;
    const mark = this.scheme.of(this.#next, masquerade);
    this.#used.add(this.#next);
    this.#slots.set(slot, mark);
    return mark;
  }

  /** The slot is wanted no more, though its mark is in use until `free`. */
  forget(slot: string): void {
    this.#slots.delete(slot);
  }

  /** No server has this mark any more. */
  free(mark: number): void {
    const id = this.scheme.idOf(mark);
    this.#used.delete(id);
    if (id < this.#next) this.#next = id;
  }
}
