import type { Element, NftBatch } from '../kernel/nftables/batch.ts';
import { FairleadError } from '../lib/errors.ts';
import { elementsOf, MAX_KEY_WORDS, writeOwnerAddress } from './address-set.ts';
import { changeGroup } from './changes.ts';
import { removeElements, writeElements } from './element-writer.ts';
import { compileRule } from './rule.ts';
import {
  type AddressSet,
  type ChainSpec,
  type ElementGroup,
  type Elements,
  type Fragment,
  type SetSpec,
  type Shape,
  shapeOf,
  type TableSpec,
} from './spec.ts';

/** Elements from index `from` up to `to`. */
export interface Span {
  readonly elements: Elements;
  readonly from: number;
  readonly to: number;
}

export interface SetState {
  readonly spec: SetSpec;
  readonly shape: Shape;
  /** The size of the set. */
  readonly size: number;
  count: number;
}

/** The elements of a set in all groups; `owners`: of its addresses. */
interface Gathered {
  readonly name: string;
  readonly elements: Elements[];
  addressSet: AddressSet | null;
  readonly owners: string[];
  count: number;
}

/** The initial elements of a dynamic set. */
export interface Restored {
  readonly set: string;
  readonly elements: readonly Element[];
}

/** A fixed-size set does not have room for the elements of a change: the table must be replaced. */
export class SetFull extends Error {}

/**
 * The minimum size of sets; fixed-size sets, which are faster to fill, have room for one and a half times
 * their elements.
 */
const MIN_SIZE = 256;
/**
 * Every set without verdicts has room for at least this share of the table's elements: when a set is full, the whole
 * table is replaced, which must not happen in a large table because a small set grows. Each transaction walks the
 * verdict maps with all of their room, since the kernel looks for loops of jumps (nft_table_validate).
 */
const MIN_SHARE = 1 / 64;
/** The approximate size in a transaction of an element with an index, and of any other element. */
const INDEXED_BYTES = 64;
const ELEMENT_BYTES = 200;

/** The contents of a written table: written as a whole by `write`, then changed group by group. */
export class TableContents {
  readonly spec: TableSpec;
  readonly #chains = new Map<string, ChainSpec>();
  /** Chains of single groups. */
  readonly #owned = new Map<string, ChainSpec>();
  readonly #sets = new Map<string, SetState>();
  readonly #fragments = new Set<Fragment>();
  readonly #groups: Map<string, ElementGroup>;
  /** By set, until `write`. */
  readonly #unwritten = new Map<string, Gathered>();
  #deferred: Span[] = [];
  #fill: (set: string) => readonly Element[] = () => [];
  #bytes = 1 << 16;
  #count = 0;

  /** Sizes the sets for all groups of the spec except those of the refused owners. */
  constructor(spec: TableSpec, refused: ReadonlyMap<string, Error>) {
    this.spec = spec;
    this.#groups = refused.size === 0 ? spec.groups : without(spec.groups, refused);
    this.#gather();
    const appended: ChainSpec[] = [];
    const addAll = ({ chains, sets }: Pick<Fragment, 'chains' | 'sets'>) => {
      for (const set of sets) {
        if (!this.#sets.has(set.name))
          this.#sets.set(set.name, this.#stateOf(set, this.#unwritten.get(set.name)?.count ?? 0));
      }
      for (const chain of chains) {
        if (!this.#chains.has(chain.name)) this.#chains.set(chain.name, chain);
      }
    };
    addAll(spec);
    for (const group of this.#groups.values()) {
      for (const chain of group.chains ?? []) this.#owned.set(chain.name, chain);
    }
    for (const fragment of this.#fragments) {
      addAll(fragment);
      appended.push(...fragment.rules);
    }
    for (const chain of appended) this.#append(chain);
  }

  get chains(): ReadonlyMap<string, ChainSpec> {
    return this.#owned.size === 0 ? this.#chains : new Map([...this.#chains, ...this.#owned]);
  }

  get sets(): ReadonlyMap<string, SetState> {
    return this.#sets;
  }

  get groups(): ReadonlyMap<string, ElementGroup> {
    return this.#groups;
  }

  /** Elements to remove when no packet uses them any longer. */
  get deferred(): readonly Span[] {
    return this.#deferred;
  }

  /** The approximate size in bytes of a transaction that writes everything. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Writes everything but the table itself. `named`: in an order that identifies the owner of each message.
   */
  write(batch: NftBatch, restored: readonly Restored[], named: boolean): void {
    const { name } = this.spec;
    for (const set of this.#sets.values()) addSet(batch, name, set);
    for (const chain of this.#chains.values()) batch.addChain(name, chain.name, chain.base);
    for (const chain of this.#chains.values()) this.#writeRules(batch, chain);
    if (!named) for (const chain of this.#owned.values()) this.#addChain(batch, chain);
    if (named) {
      for (const [owner, group] of this.#groups) {
        batch.writeFor(owner);
        for (const chain of group.chains ?? []) this.#addChain(batch, chain);
        const spans: Span[] = [];
        this.#addSpans(spans, owner, group);
        for (const span of spans) this.#add(batch, span);
      }
      batch.writeFor(null);
    } else this.#writeBySet(batch);
    this.#unwritten.clear();
    for (const { set, elements } of restored) {
      for (const element of elements) batch.addElement(name, set, element);
    }
  }

  /**
   * Writes the changes of these owners' groups; null: removes the owner. Throws SetFull; the contents must
   * then be replaced. `fill`: returns the first elements of a new dynamic set.
   */
  change(
    batch: NftBatch,
    groups: ReadonlyMap<string, ElementGroup | null>,
    fill: (set: string) => readonly Element[] = () => [],
  ): void {
    this.#fill = fill;
    const removed: Span[] = [];
    const added: Span[] = [];
    // One array for the addresses of all owners: an array for each would cost more than writing the element.
    const keys = new Uint32Array(groups.size * MAX_KEY_WORDS);
    let at = 0;
    let withElements = 0;
    for (const [owner, next] of groups) {
      const before = this.#groups.get(owner) ?? null;
      if (!before?.addressSet && !next?.addressSet) {
        this.#changeGroup(batch, owner, next, removed, added);
        withElements++;
      } else if (before?.addressSet !== next?.addressSet) {
        if (before) this.#addSpans(removed, owner, before, keys, at);
        if (next) this.#addSpans(added, owner, next, keys, at);
        this.#keep(owner, next);
        at += MAX_KEY_WORDS;
      }
    }
    // Ordered by set, so that elements share messages. Those of one owner, and addresses, are in this order already.
    if (withElements > 1) {
      removed.sort(bySet);
      added.sort(bySet);
    }
    // Removals first: an element may move from one owner to another.
    for (const one of removed) this.#remove(batch, one);
    for (const one of added) this.#add(batch, one);
  }

  removeDeferred(batch: NftBatch): void {
    const deferred = this.#deferred;
    this.#deferred = [];
    for (const one of deferred) this.#remove(batch, one);
  }

  /** Records, in one pass, which fragments are needed, the size of all elements, and the elements of each set. */
  #gather(): void {
    // Groups whose elements are in the same set are consecutive.
    let run = this.#gathered('');
    for (const [owner, { addressSet, elements, needs }] of this.#groups) {
      if (addressSet) {
        if (run.name !== addressSet.set) run = this.#gathered(addressSet.set);
        run.addressSet = addressSet;
        run.owners.push(owner);
        run.count++;
        this.#count++;
        this.#bytes += ELEMENT_BYTES;
        continue;
      }
      for (const need of needs) this.#fragments.add(need);
      for (const one of elements) {
        if (run.name !== one.set) run = this.#gathered(one.set);
        run.elements.push(one);
        run.count += one.count;
        this.#count += one.count;
        this.#bytes += one.count * (one.head ? INDEXED_BYTES : ELEMENT_BYTES);
      }
    }
  }

  #gathered(name: string): Gathered {
    let found = this.#unwritten.get(name);
    if (!found) {
      found = { name, elements: [], addressSet: null, owners: [], count: 0 };
      this.#unwritten.set(name, found);
    }
    return found;
  }

  #append({ name, rules }: ChainSpec): void {
    const chain = this.#chains.get(name);
    // Invariant: a fragment extends only chains of its own table's spec.
    if (!chain) throw new Error(`no chain ${name} to append rules to`);
    this.#chains.set(name, { ...chain, rules: [...chain.rules, ...rules] });
  }

  /** Writes the elements of each set together, so that they share messages. */
  #writeBySet(batch: NftBatch): void {
    const { family, name } = this.spec;
    const key = new Uint32Array(MAX_KEY_WORDS);
    for (const { name: set, count } of this.#unwritten.values()) if (count > 0) this.#set(set);
    for (const [set, state] of this.#sets) {
      const { elements = [], addressSet = null, owners = [] } = this.#unwritten.get(set) ?? {};
      for (const one of elements) {
        state.count += one.count;
        writeElements(batch, name, state.shape, one, 0, one.count);
      }
      if (!addressSet) continue;
      for (const owner of owners) {
        if (!writeOwnerAddress(owner, addressSet, family, key, 0)) continue;
        state.count++;
        batch.addKey(name, set, key, 0, state.shape.keyWords);
      }
    }
  }

  #writeRules(batch: NftBatch, { name, rules }: ChainSpec): void {
    for (const rule of rules) batch.addRule(this.spec.name, name, compileRule(rule, this.spec.family));
  }

  #set(name: string): SetState {
    return this.#sets.get(name) ?? missing(name);
  }

  #add(batch: NftBatch, { elements, from, to }: Span): void {
    const set = this.#set(elements.set);
    set.count += to - from;
    if (set.count > set.size) throw new SetFull(elements.set);
    writeElements(batch, this.spec.name, set.shape, elements, from, to);
  }

  #remove(batch: NftBatch, { elements, from, to }: Span): void {
    const set = this.#set(elements.set);
    set.count -= to - from;
    removeElements(batch, this.spec.name, set.shape, elements, from, to);
  }

  #changeGroup(
    batch: NftBatch,
    owner: string,
    next: ElementGroup | null,
    removed: Span[],
    added: Span[],
  ): void {
    for (const need of next?.needs ?? []) this.#addFragment(batch, need);
    this.#changeChains(batch, this.#groups.get(owner)?.chains ?? [], next?.chains ?? []);
    const kept = changeGroup(this.#groups.get(owner) ?? null, next, (set) => this.#set(set).shape, {
      add: (elements, from, to) => added.push({ elements, from, to }),
      remove: (elements, from, to, succeeded) => {
        const isDeferred = !succeeded && this.#set(elements.set).spec.removal === 'deferred';
        (isDeferred ? this.#deferred : removed).push({ elements, from, to });
      },
    });
    this.#keep(owner, kept);
  }

  /** Chains of the same name are equal. */
  #changeChains(batch: NftBatch, before: readonly ChainSpec[], after: readonly ChainSpec[]): void {
    for (const { name } of before) {
      if (after.some((one) => one.name === name)) continue;
      this.#owned.delete(name);
      batch.flushChain(this.spec.name, name);
      batch.deleteChain(this.spec.name, name);
    }
    for (const chain of after) {
      if (this.#owned.has(chain.name)) continue;
      this.#owned.set(chain.name, chain);
      this.#addChain(batch, chain);
    }
  }

  #addChain(batch: NftBatch, chain: ChainSpec): void {
    batch.addChain(this.spec.name, chain.name, chain.base);
    this.#writeRules(batch, chain);
  }

  #keep(owner: string, group: ElementGroup | null): void {
    if (group) this.#groups.set(owner, group);
    else this.#groups.delete(owner);
  }

  /** Appends all elements of a group; `keys`, from `at` on, has room for the key of the owner's address. */
  #addSpans(to: Span[], owner: string, group: ElementGroup, keys?: Uint32Array, at?: number): void {
    for (const elements of elementsOf(owner, group, this.spec.family, keys, at))
      to.push({ elements, from: 0, to: elements.count });
  }

  #stateOf(set: SetSpec, count: number): SetState {
    const share = set.data === 'verdict' ? 0 : MIN_SHARE;
    return stateOf(set, count, Math.max(MIN_SIZE, this.#count * share));
  }

  #addFragment(batch: NftBatch, fragment: Fragment): void {
    if (this.#fragments.has(fragment)) return;
    this.#fragments.add(fragment);
    const table = this.spec.name;
    for (const set of fragment.sets) {
      if (this.#sets.has(set.name)) continue;
      const state = this.#stateOf(set, 0);
      this.#sets.set(set.name, state);
      addSet(batch, table, state);
      if (set.dynamic) for (const element of this.#fill(set.name)) batch.addElement(table, set.name, element);
    }
    const fresh = fragment.chains.filter(({ name }) => !this.#chains.has(name));
    for (const chain of fresh) {
      this.#chains.set(chain.name, chain);
      batch.addChain(table, chain.name, chain.base);
    }
    for (const chain of fresh) this.#writeRules(batch, chain);
    for (const chain of fragment.rules) {
      this.#append(chain);
      this.#writeRules(batch, chain);
    }
  }
}

const bySet = (a: Span, b: Span): number =>
  a.elements.set < b.elements.set ? -1 : a.elements.set > b.elements.set ? 1 : 0;

function addSet(batch: NftBatch, table: string, { spec, size }: SetState): void {
  batch.addSet(table, Number.isFinite(size) ? { ...spec, size } : spec);
}

function missing(set: string): never {
  throw new FairleadError(`no such set: ${set}`, { op: 'program nf_tables', code: 'ENOENT' });
}

function without(groups: ReadonlyMap<string, ElementGroup>, refused: ReadonlyMap<string, Error>) {
  const left = new Map(groups);
  for (const owner of refused.keys()) left.delete(owner);
  return left;
}

function stateOf(spec: SetSpec, count: number, minSize: number): SetState {
  // Interval sets use a varying number of elements, and rules add elements to dynamic sets: these are not counted.
  const isCounted = spec.size === undefined && !spec.interval && !spec.dynamic;
  const size = isCounted ? roundUp(Math.max(minSize, count * 1.5)) : Number.POSITIVE_INFINITY;
  return { spec, shape: shapeOf(spec), size, count: 0 };
}

/** The kernel rounds up to powers of two. */
const roundUp = (count: number): number => 2 ** Math.ceil(Math.log2(count));
