import { isDeepStrictEqual } from 'node:util';
import type { NetnsRef } from '../kernel/netns.ts';
import { NFPROTO, type TableFamily } from '../kernel/nftables/constants.ts';
import type { IPFamily } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import type { ElementGroup, TableSpec } from './spec.ts';
import type { Table } from './table.ts';
import { Tables } from './tables.ts';

export interface KeptTablesOptions<F extends TableFamily = IPFamily> {
  readonly families: readonly F[];
  readonly name: string;
  /** Default: the namespace of this thread. */
  readonly netns?: NetnsRef | undefined;
  /** Whether the kernel should reject changes by other processes, if it can (6.9). Default: true. */
  readonly owned?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

/**
 * Small tables that are protected from changes: if the kernel cannot reject changes by other processes, the tables are
 * watched, and rewritten after a change (`nft flush ruleset`, the reload of a firewall).
 */
export interface KeptTables<F extends TableFamily = IPFamily> {
  /** Writes the table of a family; null: removes it. Does nothing if it is unchanged. */
  write(family: F, spec: TableSpec | null): void;
  /** Changes one group of a written table. */
  change(family: F, owner: string, group: ElementGroup | null): Promise<void>;
  /** The table of a family, to read it. */
  get(family: F): Table<F> | undefined;
  /** Compares the tables with the kernel's and rewrites those that differ; returns the family of each. */
  check(): Promise<F[]>;
  close(): void;
}

/** The reload of a firewall often makes several transactions. */
const REPAIR_MS = 50;
/** Delay after a failed repair. */
const RETRY_MS = 1000;

export function keepTables<F extends TableFamily = IPFamily>(options: KeptTablesOptions<F>): KeptTables<F> {
  const { name, owned = true, clock = systemClock, logger = silentLogger } = options;
  const tables = new Tables({ ...options, owned, clock, logger });
  const written = new Map<F, TableSpec | null>();
  let watch: { close(): void } | null = null;
  let cancel: (() => void) | null = null;
  let closed = false;

  function repairLater(delay: number): void {
    if (closed || cancel) return;
    cancel = clock.after(delay, () => {
      cancel = null;
      check().catch((error: unknown) => {
        if (closed) return;
        logger.error({ table: name }, `failed to repair the nf_tables table ${name}: ${messageOf(error)}`);
        repairLater(RETRY_MS);
      });
    });
  }

  function startWatch(): void {
    const [first] = options.families;
    if (watch || (owned && first && tables.connection.canOwnTables(NFPROTO[first]))) return;
    watch = tables.watch(() => repairLater(REPAIR_MS));
  }

  async function check(): Promise<F[]> {
    const repaired: F[] = [];
    for (const table of tables) {
      if (closed || !written.has(table.family)) continue;
      const [difference] = await table.verify();
      // A write may have happened meanwhile; then no repair is needed.
      const spec = written.get(table.family);
      if (closed || !difference || spec === undefined) continue;
      if (spec) table.replaceSync(spec);
      else table.removeSync();
      repaired.push(table.family);
      logger.warn(
        { table: name, family: table.family, ...difference },
        `another process changed the nf_tables table ${name} (${difference.kind}: ${difference.object}); rewritten`,
      );
    }
    return repaired;
  }

  return {
    write(family, spec) {
      const table = tables.get(family);
      if (!table || (written.has(family) && isDeepStrictEqual(written.get(family), spec))) return;
      written.delete(family);
      if (spec) {
        startWatch();
        table.replaceSync(spec);
      } else table.removeSync();
      written.set(family, spec);
    },
    async change(family, owner, group) {
      // A written table's map of groups is its own, which changes with it.
      if (!written.get(family))
        throw new FairleadError(`the nf_tables table ${name} does not exist`, {
          op: 'change nf_tables table',
          code: 'ENOENT',
          object: name,
        });
      await tables.get(family)?.change(new Map([[owner, group]]));
    },
    get: (family) => tables.get(family),
    check,
    close() {
      closed = true;
      cancel?.();
      watch?.close();
      tables.close();
    },
  };
}
