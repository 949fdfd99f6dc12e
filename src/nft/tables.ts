import type { NetnsRef } from '../kernel/netns.ts';
import type { Element } from '../kernel/nftables/batch.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO, type TableFamily } from '../kernel/nftables/constants.ts';
import type { DumpedElement } from '../kernel/nftables/dump.ts';
import { watchNftables } from '../kernel/nftables/events.ts';
import type { IPFamily } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import type { ElementGroup, TableSpec } from './spec.ts';
import { type CommitReport, Table } from './table.ts';
import type { Difference } from './verify.ts';

export interface TablesOptions<F extends TableFamily = IPFamily> {
  readonly families: readonly F[];
  readonly name: string;
  /** Default: the namespace of this thread. */
  readonly netns?: NetnsRef | undefined;
  /** Default: true. */
  readonly owned?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
  /**
   * Called when another process has changed the tables, after the first `replace`. Owned tables are not watched: other
   * processes cannot change them, and a watch makes large transactions more expensive.
   */
  readonly onForeignChange?: (() => void) | undefined;
  /** As in `TableOptions`. */
  readonly restore?:
    | ((set: string, elements: readonly DumpedElement[], family: F) => readonly Element[])
    | undefined;
  readonly fill?: ((set: string, family: F) => readonly Element[]) | undefined;
}

/** The tables with the same name in several families, on one connection. */
export class Tables<F extends TableFamily = IPFamily> {
  readonly connection: NftConnection;
  readonly #options: TablesOptions<F>;
  readonly #tables: ReadonlyMap<F, Table<F>>;
  #watch: { close(): void } | null = null;

  constructor(options: TablesOptions<F>) {
    const { families, name, netns, owned = true, clock = systemClock, logger = silentLogger } = options;
    const { restore, fill, onForeignChange } = options;
    this.#options = options;
    this.connection = new NftConnection(netns);
    this.#tables = new Map(
      families.map((family) => [
        family,
        new Table({
          connection: this.connection,
          family,
          name,
          owned,
          clock,
          logger,
          onDifference: onForeignChange,
          restore: restore && ((set, elements) => restore(set, elements, family)),
          fill: fill && ((set) => fill(set, family)),
        }),
      ]),
    );
  }

  [Symbol.iterator](): Iterator<Table<F>> {
    return this.#tables.values();
  }

  get(family: F): Table<F> | undefined {
    return this.#tables.get(family);
  }

  /** Whether all tables have been written. */
  get areWritten(): boolean {
    return [...this].every(({ isWritten }) => isWritten);
  }

  /** Returns true if the kernel has any of the tables. */
  get exist(): boolean {
    return [...this].some((table) => table.exists());
  }

  /** Owners that the kernel rejected, in any family. */
  get refused(): [owner: string, error: Error][] {
    return [...this].flatMap(({ refused }) => [...refused]);
  }

  /** Replaces every table, one transaction per family. `render` is called just before each. */
  async replace(render: (family: F) => TableSpec): Promise<CommitReport> {
    this.unwatch();
    try {
      let total = NOTHING;
      for (const table of this) total = sum(total, await rendered(table, render));
      return total;
    } finally {
      this.#startWatch();
    }
  }

  /** Changes groups, by family, of written tables. */
  async change(groups: ReadonlyMap<F, ReadonlyMap<string, ElementGroup | null>>): Promise<CommitReport> {
    let total: CommitReport | null = null;
    for (const [family, changed] of groups) {
      const table = this.#tables.get(family);
      if (!table || changed.size === 0) continue;
      const one = await table.change(changed);
      total = total ? sum(total, one) : one;
    }
    return total ?? NOTHING;
  }

  /** Reads the tables back and compares them with the written ones. */
  async verify(): Promise<Difference[]> {
    const differences: Difference[][] = [];
    for (const table of this) differences.push(await table.verify());
    // Not as arguments of push(): there may be too many for the stack.
    return differences.flat();
  }

  /** Calls back when another process has changed a table, or events were lost. */
  watch(onChange: () => void): { close(): void } {
    const ours = new Set([...this].map(({ family, name }) => `${NFPROTO[family]} ${name}`));
    return watchNftables(
      (transaction) => {
        if (this.connection.wrote(transaction.sequence)) return;
        if ([...transaction.tables].some((table) => ours.has(table))) onChange();
      },
      onChange,
      this.#options.netns,
    );
  }

  unwatch(): void {
    this.#watch?.close();
    this.#watch = null;
  }

  /** Removes the tables, also those of an earlier process. `settle`: see Table. */
  async remove(settle?: () => Promise<void>): Promise<void> {
    this.unwatch();
    for (const table of this) await table.remove(settle);
  }

  /** Completes deferred work and closes the connection. The tables stay. */
  close(): void {
    for (const table of this) table.close();
    this.unwatch();
    this.connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #startWatch(): void {
    const { families, owned = true, onForeignChange } = this.#options;
    if (!onForeignChange || this.#watch) return;
    const [first] = families;
    if (owned && first && this.connection.canOwnTables(NFPROTO[first])) return;
    this.#watch = this.watch(onForeignChange);
  }
}

/** Rendering counts as encoding. */
async function rendered<F extends TableFamily>(
  table: Table<F>,
  render: (family: F) => TableSpec,
): Promise<CommitReport> {
  const started = performance.now();
  const spec = render(table.family);
  const encodeMs = performance.now() - started;
  return sum({ ...NOTHING, encodeMs }, await table.replace(spec));
}

const NOTHING: CommitReport = { operations: 0, encodeMs: 0, kernelMs: 0 };

const sum = (a: CommitReport, b: CommitReport): CommitReport => ({
  operations: a.operations + b.operations,
  encodeMs: a.encodeMs + b.encodeMs,
  kernelMs: a.kernelMs + b.kernelMs,
});
