import type { NftBatch, SetDefinition } from '../../kernel/nftables/batch.ts';
import { FairleadError } from '../../lib/errors.ts';

/** Maps of fixed size have room for half as much again, and for this many. */
const LEAST_SIZE = 256;

/** A fixed-size map has no room for what a change adds: the table must be written anew. */
export class TableFull extends Error {}

/** The sets of a table, and how full each is: those of fixed size are twice as fast to fill. */
export class SizedSets {
  readonly #table: string;
  readonly #sets = new Map<string, { readonly size: number; count: number }>();

  constructor(table: string) {
    this.#table = table;
  }

  get names(): Iterable<string> {
    return this.#sets.keys();
  }

  has(set: string): boolean {
    return this.#sets.has(set);
  }

  /** Adds a set, empty; `count`: how many elements it is to have for now. */
  add(batch: NftBatch, definition: SetDefinition, count: number): void {
    const fixed = definition.size !== undefined || definition.interval;
    // A quarter of a million clients or networks that grow by rules and by ranges are not ours to count.
    const size = fixed ? (definition.size ?? 0) : roomFor(count);
    batch.addSet(this.#table, fixed ? definition : { ...definition, size });
    this.#sets.set(definition.name, { size: fixed ? Number.POSITIVE_INFINITY : size, count: 0 });
  }

  /** So many elements come (or, negative, go). Throws TableFull when they have no room. */
  count(set: string, by: number): void {
    const sized = this.#sets.get(set);
    if (!sized) {
      throw new FairleadError(`there is no set ${set}`, { op: 'program nf_tables', code: 'ENOENT' });
    }
    sized.count += by;
    if (sized.count > sized.size) throw new TableFull(set);
  }
}

/** What a kernel that rounds up to powers of two has room for without waste. */
function roomFor(count: number): number {
  const wanted = Math.max(LEAST_SIZE, Math.ceil(count * 1.5));
  return 2 ** Math.ceil(Math.log2(wanted));
}
