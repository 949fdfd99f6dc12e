import { errnoName } from '../kernel/libc.ts';
import type { Element, NftBatch } from '../kernel/nftables/batch.ts';
import { type NftConnection, NftRefusal } from '../kernel/nftables/connection.ts';
import { NFPROTO, TABLE_FLAG, type TableFamily } from '../kernel/nftables/constants.ts';
import { type DumpedElement, readCounter } from '../kernel/nftables/dump.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createMutex } from '../lib/semaphore.ts';
import type { ChainSpec, ElementGroup, TableSpec } from './spec.ts';
import { type Restored, SetFull, TableContents } from './table-contents.ts';
import { compareTable, type Difference } from './verify.ts';

/** The operations of a connection that a table needs. */
export type TableConnection = Pick<
  NftConnection,
  | 'batch'
  | 'canOwnTables'
  | 'chains'
  | 'commit'
  | 'commitSync'
  | 'elementMessages'
  | 'elements'
  | 'generation'
  | 'rules'
  | 'sets'
  | 'tables'
>;

export interface TableOptions<F extends TableFamily = IPFamily> {
  readonly connection: TableConnection;
  readonly family: F;
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
  /** Returns the initial elements of a dynamic set that is added to a written table, or of all in a new one. Default: none. */
  readonly fill?: ((set: string) => readonly Element[]) | undefined;
}

/** The cost of a write. */
export interface CommitReport {
  /** Number of messages and elements. */
  readonly operations: number;
  readonly encodeMs: number;
  readonly kernelMs: number;
}

/** The maximum delay of deferred removals; no packet is in flight longer. */
const DEFERRED_MS = 20;
/** Attempts to commit a transaction when other programs commit concurrently. */
const MAX_ATTEMPTS = 8;
/** Further attempts, each without the owners that the kernel rejects. */
const MAX_REFUSALS = 6;
const NO_CHAINS: ReadonlyMap<string, ChainSpec> = new Map();

/**
 * One nf_tables table, as this process wrote it. Calls are serialized. `replace` writes the whole table in one
 * transaction, in place of an existing one; `change` writes differences, and replaces the table if that fails.
 */
export class Table<F extends TableFamily = IPFamily> {
  readonly family: F;
  readonly name: string;
  readonly #options: TableOptions<F>;
  readonly #protocol: number;
  readonly #lock = createMutex();
  #refused = new Map<string, Error>();
  /** Null: not written yet, removed, or rejected by the kernel. */
  #contents: TableContents | null = null;
  #cancelCleaning: (() => void) | null = null;

  constructor(options: TableOptions<F>) {
    this.#options = options;
    this.family = options.family;
    this.name = options.name;
    this.#protocol = NFPROTO[options.family];
  }

  /** The connection that owns the table: its elements may be written beside `change` only in dynamic sets. */
  get connection(): TableConnection {
    return this.#options.connection;
  }

  /** Whether the table has been written, and not removed. */
  get isWritten(): boolean {
    return this.#contents !== null;
  }

  /** Owners that are left out because the kernel rejected their elements, each with the reason. */
  get refused(): ReadonlyMap<string, Error> {
    return this.#refused;
  }

  group(owner: string): ElementGroup | null {
    return this.#contents?.groups.get(owner) ?? null;
  }

  get chains(): ReadonlyMap<string, ChainSpec> {
    return this.#contents?.chains ?? NO_CHAINS;
  }

  /** The number of written elements; a range counts as one. */
  get elementCount(): number {
    let sum = 0;
    for (const { count } of this.#contents?.sets.values() ?? []) sum += count;
    return sum;
  }

  /** Returns true if the kernel has a table of this name, of any process. */
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
      const contents = this.#contents;
      // Invariant: every mode calls `replace` before `change`.
      if (!contents) throw new Error(`table ${this.name} was changed before it was written`);
      const { connection, logger } = this.#options;
      const started = performance.now();
      const batch = connection.batch(this.#protocol);
      try {
        contents.removeDeferred(batch);
        contents.change(batch, groups, this.#options.fill);
        for (const owner of groups.keys()) this.#refused.delete(owner);
        const encoded = performance.now();
        await connection.commit(batch);
        if (contents.deferred.length > 0) this.#cleanLater();
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
        const all = new Map(contents.groups);
        for (const [owner, next] of groups) {
          if (next) all.set(owner, next);
          else all.delete(owner);
        }
        const refused = new Map([...this.#refused].filter(([owner]) => !groups.has(owner)));
        return await this.#replace({ ...contents.spec, groups: all }, refused);
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

  /** Works like `forget`, but behind other writes of the table, and without blocking. */
  discard(set: string, keys: readonly ArrayLike<number>[]): Promise<void> {
    return this.#lock.run(async () => {
      const { connection } = this.#options;
      if (!this.#contents?.sets.has(set) || keys.length === 0) return;
      const all = connection.batch(this.#protocol);
      for (const key of keys) all.destroyElement(this.name, set, { key });
      try {
        await connection.commit(all);
        return;
      } catch (error) {
        // Kernels before 6.3 do not know the message.
        if (!hasCode(error, 'EINVAL', 'EOPNOTSUPP')) throw error;
      }
      for (const key of keys) {
        const one = connection.batch(this.#protocol);
        one.deleteElement(this.name, set, { key });
        await connection.commit(one).catch((error: unknown) => {
          if (!hasCode(error, 'ENOENT')) throw error;
        });
      }
    });
  }

  /** Reads the table back and compares it with the written contents; after `remove`, expects no table. */
  verify(): Promise<Difference[]> {
    return this.#lock.run(async () => {
      for (;;) {
        const contents = this.#contents;
        const differences = await compareTable(this.#options.connection, this.family, this.name, contents);
        // `replaceSync` and `removeSync` do not wait for the comparison.
        if (this.#contents === contents) return differences;
      }
    });
  }

  /**
   * Removes the table, also one of an earlier process. In two transactions: in a single one, the kernel removes the
   * elements of maps a few hundred microseconds before it unregisters the chains from their hooks (nf_tables_commit builds
   * no new rules for deleted chains), and packets would pass the rules while the lookups fail. `settle` runs after each
   * transaction: when a chain is deleted, the kernel drops the packets that its rules have queued.
   */
  remove(settle?: () => Promise<void>): Promise<void> {
    return this.#lock.run(async () => {
      for (const batch of this.#removal()) {
        await this.#options.connection.commit(batch);
        await settle?.();
      }
    });
  }

  /** Like `remove`, but blocks until the kernel is done. */
  removeSync(): void {
    for (const batch of this.#removal()) this.#options.connection.commitSync(batch);
  }

  *#removal(): Generator<NftBatch> {
    this.#cancelCleaning?.();
    this.#cancelCleaning = null;
    this.#contents = null;
    this.#refused.clear();
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
      const contents = this.#load(spec, refused);
      const restored = isThere ? this.#restored(contents) : this.#filled(contents);
      const read = performance.now();
      // The last attempt is made without the check: other programs may change their rules continuously.
      const batch = connection.batch(this.#protocol, {
        capacity: contents.bytes,
        ...(attempt < MAX_ATTEMPTS ? { generation } : {}),
      });
      if (isThere) batch.deleteTable(this.name);
      batch.addTable(this.name, flags);
      contents.write(batch, restored, named);
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
      this.#contents = null;
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

  /** Adopts the wanted contents of the table before they are written. */
  #load(spec: TableSpec, refused: ReadonlyMap<string, Error>): TableContents {
    this.#cancelCleaning?.();
    this.#cancelCleaning = null;
    this.#refused = new Map(refused);
    this.#contents = new TableContents(spec, refused);
    return this.#contents;
  }

  #restored({ sets }: TableContents): Restored[] {
    const { restore } = this.#options;
    if (!restore) return [];
    return [...sets.values()]
      .filter(({ spec }) => spec.dynamic)
      .map(({ spec: { name } }) => ({ set: name, elements: restore(name, this.read(name)) }));
  }

  #filled({ sets }: TableContents): Restored[] {
    const { fill } = this.#options;
    if (!fill) return [];
    return [...sets.values()]
      .filter(({ spec }) => spec.dynamic)
      .map(({ spec: { name } }) => ({ set: name, elements: fill(name) }));
  }

  #cleanLater(): void {
    this.#cancelCleaning ??= this.#options.clock.after(DEFERRED_MS, () => {
      this.#cancelCleaning = null;
      if (this.#lock.busy) this.#cleanLater();
      else this.#clean();
    });
  }

  #clean(): void {
    const contents = this.#contents;
    if (!contents || contents.deferred.length === 0) return;
    const { connection, logger, onDifference } = this.#options;
    const batch = connection.batch(this.#protocol);
    contents.removeDeferred(batch);
    try {
      connection.commitSync(batch);
    } catch (error) {
      const context = { family: this.family, table: this.name, error: messageOf(error) };
      logger.warn(context, 'the nf_tables table was changed by another process');
      onDifference?.();
    }
  }
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
