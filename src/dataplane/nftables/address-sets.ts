import type { NftBatch } from '../../kernel/nftables/batch.ts';
import { wordsOf } from '../../nft/encoding.ts';
import { mergedRanges, successor } from '../../nft/ranges.ts';
import type { NodeView } from '../../service/model.ts';
import type { RegisterKeys } from './register-keys.ts';
import type { SizedSets } from './sized-sets.ts';

export type AddressSet = 'cluster-ips' | 'hairpin';

/** A set's elements twice the address: a packet that an endpoint sends to itself. */
const TIMES = { 'cluster-ips': 1, hairpin: 2 } as const;

/** One family's sets of addresses and networks, of the node and of all Services together. */
export class AddressSets {
  readonly #table: string;
  readonly #node: NodeView;
  readonly #keys: RegisterKeys;
  readonly #sets: SizedSets;
  readonly #known = { 'cluster-ips': new Set<string>(), hairpin: new Set<string>() };

  constructor(table: string, node: NodeView, keys: RegisterKeys, sets: SizedSets) {
    this.#table = table;
    this.#node = node;
    this.#keys = keys;
    this.#sets = sets;
  }

  /** What the node alone decides. */
  addFixed(batch: NftBatch): void {
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        batch.addElement(this.#table, set, { key: wordsOf(first) });
        const end = successor(last);
        if (end) batch.addElement(this.#table, set, { key: wordsOf(end), intervalEnd: true });
      }
    }
    for (const ip of this.#ownAddresses()) {
      batch.addElement(this.#table, 'own-addresses', { key: this.#keys.address(ip) });
    }
  }

  add(batch: NftBatch, set: AddressSet, addresses: Iterable<string>): void {
    for (const ip of addresses) this.#put(batch, set, ip, true);
  }

  remove(batch: NftBatch, set: AddressSet, addresses: Iterable<string>): void {
    for (const ip of addresses) this.#put(batch, set, ip, false);
  }

  /** All elements, for `put`. */
  expected(put: (set: string, key: ArrayLike<number>, value: string) => void): void {
    for (const set of ['cluster-ips', 'hairpin'] as const) {
      for (const ip of this.#known[set]) put(set, this.#keys.address(ip, TIMES[set]), '');
    }
    for (const ip of this.#ownAddresses()) put('own-addresses', this.#keys.address(ip), '');
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        put(set, wordsOf(first), 'start');
        const end = successor(last);
        if (end) put(set, wordsOf(end), 'end');
      }
    }
  }

  #ownAddresses(): string[] {
    return [...new Set(this.#node.ownServiceAddresses)].filter((ip) => this.#keys.isOurs(ip));
  }

  #networks() {
    const { serviceCidrs, nodePortAddresses } = this.#node;
    const { family } = this.#keys;
    const ports = nodePortAddresses[family];
    return [
      ['service-networks', mergedRanges(serviceCidrs, family)],
      ['nodeport-networks', mergedRanges(ports.all ? [] : ports.cidrs, family)],
    ] as const;
  }

  #put(batch: NftBatch, set: AddressSet, ip: string, on: boolean): void {
    const known = this.#known[set];
    if (!this.#keys.isOurs(ip) || known.has(ip) === on) return;
    let key: Uint32Array;
    try {
      key = this.#keys.address(ip, TIMES[set]);
    } catch {
      // No packet has such an address; the frontends that it stands in are reported.
      return;
    }
    this.#sets.count(set, on ? 1 : -1);
    if (on) {
      known.add(ip);
      batch.addElement(this.#table, set, { key });
    } else {
      known.delete(ip);
      batch.deleteElement(this.#table, set, { key });
    }
  }
}
