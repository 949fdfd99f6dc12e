import { errnoName } from '../kernel/libc.ts';
import type { Element, NftBatch } from '../kernel/nftables/batch.ts';
import { type NftConnection, NftRefusal } from '../kernel/nftables/connection.ts';
import { NFPROTO, TABLE_FLAG } from '../kernel/nftables/constants.ts';
import { type DumpedElement, readCounter } from '../kernel/nftables/dump.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createMutex } from '../lib/semaphore.ts';
import { changeGroup } from './changes.ts';
import { removeElements, writeElements } from './element-writer.ts';
import { compileRule } from './rule.ts';
import {
  type ChainSpec,
  type ElementGroup,
  type Elements,
  type Fragment,
  type SetSpec,
  type Shape,
  shapeOf,
  type TableSpec,
} from './spec.ts';
import { compareTable, type Difference } from './verify.ts';

/** The operations of a connection that a table needs. */
export type TableConnection = Pick<
  NftConnection,
  | 'batch'
  | 'canOwnTables'
  | 'chains'
  | 'commit'
  | 'commitSync'
  | 'elements'
  | 'generation'
  | 'rules'
  | 'sets'
  | 'tables'
>;

export interface TableOptions {
  readonly connection: TableConnection;
  readonly family: IPFamily;
  readonly name: string;
  /** Whether the table is owned by this process and outlives it, if the kernel supports it (6.9). */
  readonly owned: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called when the kernel's table differs from the last written one. */
  readonly onDifference?: (() => void) | undefined;
  /**
   * Selects, from the current elements of a dynamic set, the initial elements of the set in a replacing table.
   * Default: none.
   */
  readonly restore?: ((set: string, elements: readonly DumpedElement[]) => readonly Element[]) | undefined;
}

/** The cost of a write. */
export interface CommitReport {
  /** Messages and elements. */
  readonly operations: number;
  readonly encodeMs: number;
  readonly kernelMs: number;
}

/** The maximum delay of deferred removals; no packet is in flight longer. */
const DEFERRED_MS = 20;
/** Attempts to commit a transaction when other programs commit concurrently. */
const MAX_ATTEMPTS = 8;
/** Further attempts without the owners that the kernel rejects. */
const MAX_REFUSALS = 6;
/** The minimum size of sets; fixed-size sets, which are faster to fill, get one and a half times their elements. */
const MIN_SIZE = 256;
/** The approximate size in a transaction of an element with an index, and of any other element. */
const INDEXED_BYTES = 64;
const ELEMENT_BYTES = 200;

/** Elements from index `from` up to `to`. */
interface Span {
  readonly elements: Elements;
  readonly from: number;
  readonly to: number;
}

interface Spans {
  readonly removed: Span[];
  readonly added: Span[];
}

const whole = (elements: Elements): Span => ({ elements, from: 0, to: elements.count });
const bySet = (a: Span, b: Span): number =>
  a.elements.set < b.elements.set ? -1 : a.elements.set > b.elements.set ? 1 : 0;

/** A fixed-size set has no room for the elements of a change: the table must be replaced. */
class SetFull extends Error {}

interface SetState {
  readonly spec: SetSpec;
  readonly shape: Shape;
  /** The size of the set. */
  readonly size: number;
  count: number;
}

/**
 * One nf_tables table, as this process wrote it. Calls are serialized. `replace` writes the whole table in one
 * transaction, in place of an existing one; `change` writes differences, and replaces the table if that fails.
 */
export class Table {
  readonly family: IPFamily;
  readonly name: string;
  readonly #options: TableOptions;
  readonly #protocol: number;
  readonly #lock = createMutex();
  readonly #chains = new Map<string, ChainSpec>();
  readonly #sets = new Map<string, SetState>();
  readonly #fragments = new Set<Fragment>();
  readonly #refused = new Map<string, Error>();
  #groups = new Map<string, ElementGroup>();
  #spec: TableSpec | null = null;
  #deferred: Span[] = [];
  #cancelCleaning: (() => void) | null = null;

  constructor(options: TableOptions) {
    this.#options = options;
    this.family = options.family;
    this.name = options.name;
    this.#protocol = NFPROTO[options.family];
  }

  /** Whether the table has been written, and not removed. */
  get isWritten(): boolean {
    return this.#spec !== null;
  }

  /** Owners whose elements the kernel rejected, which are left out, each with the reason. */
  get refused(): ReadonlyMap<string, Error> {
    return this.#refused;
  }

  group(owner: string): ElementGroup | null {
    return this.#groups.get(owner) ?? null;
  }

  get chains(): ReadonlyMap<string, ChainSpec> {
    return this.#chains;
  }

  /** The number of written elements; a range counts as one. */
  get elementCount(): number {
    let sum = 0;
    for (const { count } of this.#sets.values()) sum += count;
    return sum;
  }

  /** Returns whether the kernel has a table of this name, of any process. */
  exists(): boolean {
    return this.#options.connection.tables(this.#protocol).some(({ name }) => name === this.name);
  }

  /** Returns the names of the table's chains in the kernel; empty if there is no table. */
  readChains(): string[] {
    return this.exists() ? this.#options.connection.chains(this.#protocol, this.name) : [];
  }

  /** Returns the packets that the counters of a chain have counted; 0 if there is no such chain in the kernel. */
  packets(chain: string): number {
    if (!this.exists()) return 0;
    const rules = this.#options.connection.rules(this.#protocol, this.name, chain).get(chain) ?? [];
    return rules.reduce((sum, rule) => sum + readCounter(rule), 0);
  }

  /** Returns a set's elements in the kernel; empty if table or set are missing, or the set is of another kind. */
  read(set: string): DumpedElement[] {
    try {
      return this.#options.connection.elements(this.#protocol, this.name, set);
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return [];
      throw error;
    }
  }

  /**
   * Writes the whole table in one transaction, in place of an existing one. Owners whose elements the kernel rejects are left
   * out (`refused`). Throws NftRefusal if it rejects anything else, and EPERM for a table that another process owns.
   */
  replace(spec: TableSpec): Promise<CommitReport> {
    return this.#lock.run(() => this.#replace(spec));
  }

  /** Like `replace`, but blocks until the kernel is done. */
  replaceSync(spec: TableSpec): CommitReport {
    const { connection } = this.#options;
    const steps = this.#attempts(spec, new Map());
    for (let step = steps.next(null); ; ) {
      if (step.done) return step.value;
      let failure: unknown = null;
      try {
        connection.commitSync(step.value);
      } catch (error) {
        failure = error;
      }
      step = steps.next(failure);
    }
  }

  /** Changes the groups of these owners, in one transaction; null: removes the owner. */
  change(groups: ReadonlyMap<string, ElementGroup | null>): Promise<CommitReport> {
    return this.#lock.run(async () => {
      // Invariant: every mode calls `replace` before `change`.
      if (!this.#spec) throw new Error(`table ${this.name} was changed before it was written`);
      const { connection, logger } = this.#options;
      const started = performance.now();
      const batch = connection.batch(this.#protocol);
      try {
        this.#removeDeferred(batch);
        const spans: Spans = { removed: [], added: [] };
        for (const [owner, next] of groups) this.#changeGroup(batch, owner, next, spans);
        // Removals first: an element may move from one owner to another. By set, so that elements share messages.
        for (const one of spans.removed.sort(bySet)) this.#remove(batch, one);
        for (const one of spans.added.sort(bySet)) this.#add(batch, one);
        const encoded = performance.now();
        await connection.commit(batch);
        if (this.#deferred.length > 0) this.#cleanLater();
        return {
          operations: batch.operations,
          encodeMs: encoded - started,
          kernelMs: performance.now() - encoded,
        };
      } catch (error) {
        if (!(error instanceof SetFull)) {
          const context = { family: this.family, table: this.name, error: messageOf(error) };
          logger.warn(context, 'the kernel rejected a change; replacing the nf_tables table');
        }
        const all = new Map(this.#groups);
        for (const [owner, next] of groups) {
          if (next) all.set(owner, next);
          else all.delete(owner);
        }
        const refused = new Map([...this.#refused].filter(([owner]) => !groups.has(owner)));
        return await this.#replace({ ...this.#spec, groups: all }, refused);
      }
    });
  }

  /** Deletes elements that the kernel's rules added to a dynamic set, unless they have expired. */
  forget(set: string, keys: readonly ArrayLike<number>[]): void {
    const { connection } = this.#options;
    const all = connection.batch(this.#protocol);
    for (const key of keys) all.destroyElement(this.name, set, { key });
    try {
      connection.commitSync(all);
      return;
    } catch (error) {
      // Kernels before 6.3 do not know the message.
      if (!hasCode(error, 'EINVAL', 'EOPNOTSUPP')) throw error;
    }
    for (const key of keys) {
      const one = connection.batch(this.#protocol);
      one.deleteElement(this.name, set, { key });
      try {
        connection.commitSync(one);
      } catch (error) {
        if (!hasCode(error, 'ENOENT')) throw error;
      }
    }
  }

  /** Reads the table back and compares it with what was written; after `remove`: nothing should be there. */
  verify(): Promise<Difference[]> {
    return this.#lock.run(async () =>
      compareTable(
        this.#options.connection,
        this.family,
        this.name,
        this.#spec && {
          chains: this.#chains,
          sets: this.#sets,
          groups: this.#groups.values(),
          deferred: this.#deferred,
        },
      ),
    );
  }

  /**
   * Removes the table, also one of an earlier process. In two transactions: in a single one, the kernel removes the
   * elements of maps some hundred microseconds before it unregisters the chains from their hooks (nf_tables_commit builds
   * no new rules for deleted chains), and packets would pass the rules while the lookups fail.
   */
  remove(): Promise<void> {
    return this.#lock.run(async () => {
      for (const batch of this.#removal()) await this.#options.connection.commit(batch);
    });
  }

  /** Like `remove`, but blocks until the kernel is done. */
  removeSync(): void {
    for (const batch of this.#removal()) this.#options.connection.commitSync(batch);
  }

  *#removal(): Generator<NftBatch> {
    this.#reset();
    this.#spec = null;
    if (!this.exists()) return;
    const { connection } = this.#options;
    const rules = connection.batch(this.#protocol);
    rules.flushTable(this.name);
    yield rules;
    const rest = connection.batch(this.#protocol);
    rest.deleteTable(this.name);
    yield rest;
  }

  /** Completes deferred work. The table stays. */
  close(): void {
    this.#cancelCleaning?.();
    this.#cancelCleaning = null;
    this.#clean();
  }

  async #replace(spec: TableSpec, refused = new Map<string, Error>()): Promise<CommitReport> {
    const { connection } = this.#options;
    const steps = this.#attempts(spec, refused);
    for (let step = steps.next(null); ; ) {
      if (step.done) return step.value;
      const failure = await connection.commit(step.value).then(
        () => null,
        (error: unknown) => error,
      );
      step = steps.next(failure);
    }
  }

  /** Yields transactions until one is committed; receives the error of each, or null. */
  *#attempts(spec: TableSpec, refused: Map<string, Error>): Generator<NftBatch, CommitReport, unknown> {
    const { connection, logger } = this.#options;
    // The probe is itself a transaction: later, it would invalidate the generation that is read below.
    const flags =
      this.#options.owned && connection.canOwnTables(this.#protocol)
        ? TABLE_FLAG.owner | TABLE_FLAG.persist
        : 0;
    let named = false;
    for (let attempt = 1; ; attempt++) {
      const started = performance.now();
      const generation = connection.generation();
      const isThere = this.exists();
      this.#load(spec, refused);
      const restored = isThere ? this.#restored() : [];
      const read = performance.now();
      // The last attempt is made without the check: other programs may change their rules continuously.
      const batch = connection.batch(this.#protocol, {
        capacity: this.#bytes(),
        ...(attempt < MAX_ATTEMPTS ? { generation } : {}),
      });
      if (isThere) batch.deleteTable(this.name);
      batch.addTable(this.name, flags);
      this.#write(batch, restored, named);
      const encoded = performance.now();
      const error = yield batch;
      if (error === null) {
        return {
          operations: batch.operations,
          encodeMs: encoded - read,
          kernelMs: performance.now() - encoded + (read - started),
        };
      }
      if (attempt < MAX_ATTEMPTS && hasCode(error, 'ERESTART')) continue;
      this.#spec = null;
      if (attempt >= MAX_ATTEMPTS + MAX_REFUSALS) throw error;
      if (!(error instanceof NftRefusal) || hasCode(error, 'EPERM')) throw error;
      // In a transaction that names owners, errors identify the rejected owners; the next one leaves them out.
      const found = named ? refusalsByOwner(batch, error) : null;
      if (found?.size === 0) throw error;
      const context = { family: this.family, table: this.name, error: messageOf(error) };
      logger.warn(context, 'the kernel rejects some elements of the nf_tables table');
      for (const [owner, reason] of found ?? []) refused.set(owner, reason);
      named = !named;
    }
  }

  #reset(): void {
    this.#cancelCleaning?.();
    this.#cancelCleaning = null;
    this.#chains.clear();
    this.#sets.clear();
    this.#fragments.clear();
    this.#refused.clear();
    this.#groups = new Map();
    this.#deferred = [];
  }

  /** Adopts the wanted state of the table, with sets large enough for it. */
  #load(spec: TableSpec, refused: ReadonlyMap<string, Error>): void {
    this.#reset();
    this.#spec = spec;
    for (const [owner, error] of refused) this.#refused.set(owner, error);
    this.#groups = new Map(spec.groups);
    for (const owner of refused.keys()) this.#groups.delete(owner);
    const counts = new Map<string, number>();
    // Groups whose elements are in the same set follow each other.
    let run = { set: '', count: 0 };
    for (const group of this.#groups.values()) {
      for (const need of group.needs) this.#fragments.add(need);
      for (const { set, count } of group.elements) {
        if (set !== run.set) {
          counts.set(run.set, (counts.get(run.set) ?? 0) + run.count);
          run = { set, count: 0 };
        }
        run.count += count;
      }
    }
    counts.set(run.set, (counts.get(run.set) ?? 0) + run.count);
    const appended: ChainSpec[] = [];
    const addAll = ({ chains, sets }: Pick<Fragment, 'chains' | 'sets'>) => {
      for (const set of sets) {
        if (!this.#sets.has(set.name)) this.#sets.set(set.name, stateOf(set, counts.get(set.name) ?? 0));
      }
      for (const chain of chains) {
        if (!this.#chains.has(chain.name)) this.#chains.set(chain.name, chain);
      }
    };
    addAll(spec);
    for (const fragment of this.#fragments) {
      addAll(fragment);
      appended.push(...fragment.rules);
    }
    for (const chain of appended) this.#append(chain);
  }

  #append({ name, rules }: ChainSpec): void {
    const chain = this.#chains.get(name);
    // Invariant: a fragment extends only chains of its own table's spec.
    if (!chain) throw new Error(`no chain ${name} to append rules to`);
    this.#chains.set(name, { ...chain, rules: [...chain.rules, ...rules] });
  }

  #restored(): { readonly set: string; readonly elements: readonly Element[] }[] {
    const { restore } = this.#options;
    if (!restore) return [];
    return [...this.#sets.values()]
      .filter(({ spec }) => spec.dynamic)
      .map(({ spec }) => ({
        set: spec.name,
        elements: restore(spec.name, this.read(spec.name)),
      }));
  }

  #bytes(): number {
    let bytes = 1 << 16;
    for (const { elements } of this.#groups.values()) {
      for (const { head, count } of elements) bytes += count * (head ? INDEXED_BYTES : ELEMENT_BYTES);
    }
    return bytes;
  }

  #write(
    batch: NftBatch,
    restored: readonly { readonly set: string; readonly elements: readonly Element[] }[],
    named: boolean,
  ): void {
    for (const { spec, size } of this.#sets.values()) {
      batch.addSet(this.name, Number.isFinite(size) ? { ...spec, size } : spec);
    }
    for (const { name, base } of this.#chains.values()) batch.addChain(this.name, name, base);
    for (const chain of this.#chains.values()) this.#writeRules(batch, chain);
    if (named) {
      for (const [owner, { elements }] of this.#groups) {
        batch.writeFor(owner);
        for (const one of elements) this.#add(batch, whole(one));
      }
      batch.writeFor(null);
    } else {
      // Set by set, so that the elements of a set share messages.
      const bySet = new Map<string, Elements[]>([...this.#sets.keys()].map((name) => [name, []]));
      let run: { readonly set: string; readonly list: Elements[] } = { set: '', list: [] };
      for (const { elements } of this.#groups.values()) {
        for (const one of elements) {
          if (one.set !== run.set) run = { set: one.set, list: listOf(bySet, one.set) };
          run.list.push(one);
        }
      }
      for (const [name, list] of bySet) this.#addAll(batch, this.#set(name), list);
    }
    for (const { set, elements } of restored) {
      for (const element of elements) batch.addElement(this.name, set, element);
    }
  }

  #writeRules(batch: NftBatch, { name, rules }: ChainSpec): void {
    for (const rule of rules) batch.addRule(this.name, name, compileRule(rule, this.family));
  }

  #set(name: string): SetState {
    const set = this.#sets.get(name);
    if (!set) throw missing(name);
    return set;
  }

  #add(batch: NftBatch, { elements, from, to }: Span): void {
    const set = this.#set(elements.set);
    set.count += to - from;
    if (set.count > set.size) throw new SetFull(elements.set);
    writeElements(batch, this.name, set.shape, elements, from, to);
  }

  /** Adds all elements of lists that are of one set. */
  #addAll(batch: NftBatch, set: SetState, list: readonly Elements[]): void {
    for (const one of list) {
      set.count += one.count;
      writeElements(batch, this.name, set.shape, one, 0, one.count);
    }
    if (set.count > set.size) throw new SetFull(set.spec.name);
  }

  #remove(batch: NftBatch, { elements, from, to }: Span): void {
    const set = this.#set(elements.set);
    set.count -= to - from;
    removeElements(batch, this.name, set.shape, elements, from, to);
  }

  #changeGroup(batch: NftBatch, owner: string, next: ElementGroup | null, { removed, added }: Spans): void {
    this.#refused.delete(owner);
    for (const need of next?.needs ?? []) this.#addFragment(batch, need);
    const kept = changeGroup(this.#groups.get(owner) ?? null, next, (set) => this.#set(set).shape, {
      add: (elements, from, to) => added.push({ elements, from, to }),
      remove: (elements, from, to, replaced) => {
        const isDeferred = !replaced && this.#set(elements.set).spec.removal === 'deferred';
        (isDeferred ? this.#deferred : removed).push({ elements, from, to });
      },
    });
    if (kept) this.#groups.set(owner, kept);
    else this.#groups.delete(owner);
  }

  #addFragment(batch: NftBatch, fragment: Fragment): void {
    if (this.#fragments.has(fragment)) return;
    this.#fragments.add(fragment);
    for (const set of fragment.sets) {
      if (this.#sets.has(set.name)) continue;
      const state = stateOf(set, 0);
      this.#sets.set(set.name, state);
      batch.addSet(this.name, Number.isFinite(state.size) ? { ...set, size: state.size } : set);
    }
    const fresh = fragment.chains.filter(({ name }) => !this.#chains.has(name));
    for (const chain of fresh) {
      this.#chains.set(chain.name, chain);
      batch.addChain(this.name, chain.name, chain.base);
    }
    for (const chain of fresh) this.#writeRules(batch, chain);
    for (const chain of fragment.rules) {
      this.#append(chain);
      this.#writeRules(batch, chain);
    }
  }

  #removeDeferred(batch: NftBatch): void {
    const deferred = this.#deferred;
    this.#deferred = [];
    for (const one of deferred) this.#remove(batch, one);
  }

  #cleanLater(): void {
    this.#cancelCleaning?.();
    this.#cancelCleaning = this.#options.clock.after(DEFERRED_MS, () => {
      this.#cancelCleaning = null;
      if (this.#lock.busy) this.#cleanLater();
      else this.#clean();
    });
  }

  #clean(): void {
    if (this.#deferred.length === 0) return;
    const { connection, logger, onDifference } = this.#options;
    const batch = connection.batch(this.#protocol);
    this.#removeDeferred(batch);
    try {
      connection.commitSync(batch);
    } catch (error) {
      const context = { family: this.family, table: this.name, error: messageOf(error) };
      logger.warn(context, 'the nf_tables table was changed by another process');
      onDifference?.();
    }
  }
}

function missing(set: string): FairleadError {
  return new FairleadError(`no such set: ${set}`, { op: 'program nf_tables', code: 'ENOENT' });
}

function listOf(lists: ReadonlyMap<string, Elements[]>, set: string): Elements[] {
  const list = lists.get(set);
  if (!list) throw missing(set);
  return list;
}

function stateOf(spec: SetSpec, count: number): SetState {
  // Interval sets use a varying number of elements, and rules add elements to dynamic sets: these are not counted.
  const isCounted = spec.size === undefined && !spec.interval && !spec.dynamic;
  const size = isCounted ? roomFor(count) : Number.POSITIVE_INFINITY;
  return { spec, shape: shapeOf(spec), size, count: 0 };
}

/** The kernel rounds up to powers of two. */
function roomFor(count: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(MIN_SIZE, Math.ceil(count * 1.5))));
}

/** Returns the owners whose messages the kernel rejected, each with its reason. */
function refusalsByOwner(batch: NftBatch, { refusals }: NftRefusal): Map<string, Error> {
  const found = new Map<string, Error>();
  for (const { sequence, errno } of refusals) {
    const owner = batch.owner(sequence);
    if (owner === null || found.has(owner)) continue;
    const object = batch.object(sequence);
    const code = errnoName(errno);
    found.set(
      owner,
      new FairleadError(`the kernel rejected ${object} for ${owner}: ${code}`, {
        op: 'program nf_tables',
        code: errorCode(code),
        object: owner,
      }),
    );
  }
  return found;
}
