import { isDeepStrictEqual } from 'node:util';
import type { IPFamily } from '../lib/address.ts';
import type { KeptTables } from '../nft/kept-tables.ts';
import type { ElementGroup, TableSpec } from '../nft/spec.ts';

/** More changes are written with the whole table: each one is a transaction. */
const MAX_CHANGES = 32;

/** What was written last, by table and family: a written table's own map of groups changes with it. */
const written = new WeakMap<KeptTables, Map<IPFamily, TableSpec>>();

/** Writes a table; of one that differs in a few groups of elements only those, so that its counters go on. */
export async function writeChanges(
  tables: KeptTables,
  family: IPFamily,
  spec: TableSpec | null,
): Promise<void> {
  const known = written.get(tables) ?? new Map<IPFamily, TableSpec>();
  written.set(tables, known);
  const before = known.get(family);
  known.delete(family);
  const copy = spec && { ...spec, groups: new Map(spec.groups) };
  const changes = before && spec ? changedGroups(before, spec) : null;
  if (changes === null) tables.write(family, spec);
  else for (const [owner, group] of changes) await tables.change(family, owner, group);
  if (copy) known.set(family, copy);
}

/** Returns the groups that differ; null: something else does, too, or they are many. */
function changedGroups(before: TableSpec, next: TableSpec): Map<string, ElementGroup | null> | null {
  if (!isDeepStrictEqual(before.chains, next.chains) || !isDeepStrictEqual(before.sets, next.sets))
    return null;
  const changes = new Map<string, ElementGroup | null>();
  for (const [owner, group] of next.groups)
    if (!isDeepStrictEqual(before.groups.get(owner), group)) changes.set(owner, group);
  for (const owner of before.groups.keys()) if (!next.groups.has(owner)) changes.set(owner, null);
  return changes.size > MAX_CHANGES ? null : changes;
}
