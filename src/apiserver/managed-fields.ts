import { timestamp } from '../kube/timestamp.ts';
import { type FieldSet, fieldSetOf, insert, members, remove, valueAt } from './field-set.ts';
import { type ApiObject, equal, type JsonObject } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';

/** meta/v1 ManagedFieldsEntry. */
export interface ManagedFields {
  manager: string;
  operation: 'Apply' | 'Update';
  apiVersion: string;
  time?: string;
  fieldsType: string;
  fieldsV1: FieldSet;
  subresource?: string;
}

/** Who writes, and through which door. */
export interface FieldManager {
  readonly name: string;
  readonly apiVersion: string;
  readonly subresource: string;
  readonly now: Date;
}

/** Entries of updates beyond this number are united, oldest first (as upstream). */
const MOST_UPDATERS = 10;
const ANCIENT = 'ancient-changes';

export function managedFieldsOf(object: ApiObject): ManagedFields[] {
  return structuredClone((object.metadata.managedFields ?? []) as unknown as ManagedFields[]);
}

export function setManagedFields(object: ApiObject, entries: readonly ManagedFields[]): void {
  const kept = entries.filter((entry) => Object.keys(entry.fieldsV1).length > 0);
  object.metadata.managedFields = kept as unknown as NonNullable<ApiObject['metadata']['managedFields']>;
}

/**
 * Records in `after` what an update (anything but an apply) changed: the fields become the manager's and cease to be
 * anybody else's. `before` is null for a creation.
 */
export function recordUpdate(
  before: ApiObject | null,
  after: ApiObject,
  schema: FieldSchema | null,
  manager: FieldManager,
): void {
  const now = fieldSetOf(after as JsonObject, schema);
  const then = before ? fieldSetOf(before as JsonObject, schema) : {};
  const paths = members(now);
  const present = new Set(paths.map((path) => path.join('\n')));
  const changed = paths.filter(
    (path) => !equal(valueAt(after as JsonObject, path), valueAt(before as JsonObject | null, path)),
  );
  const gone = members(then).filter((path) => !present.has(path.join('\n')));
  if (changed.length === 0 && gone.length === 0) return;

  const entries = managedFieldsOf(after);
  const isOurs = (entry: ManagedFields) =>
    entry.manager === manager.name &&
    entry.operation === 'Update' &&
    entry.apiVersion === manager.apiVersion &&
    (entry.subresource ?? '') === manager.subresource;
  let own = entries.find(isOurs);
  if (!own) {
    own = {
      manager: manager.name,
      operation: 'Update',
      apiVersion: manager.apiVersion,
      fieldsType: 'FieldsV1',
      fieldsV1: {},
      ...(manager.subresource ? { subresource: manager.subresource } : {}),
    };
    entries.push(own);
  }
  // A key or a value is part of what it names: whoever has added an item does not lose it by a change inside.
  const leaf = (path: readonly string[]) => path.at(-1)?.startsWith('f:') === true;
  for (const entry of entries) {
    for (const path of gone) remove(entry.fieldsV1, path);
    if (entry !== own) for (const path of changed.filter(leaf)) remove(entry.fieldsV1, path);
  }
  for (const path of changed)
    if (leaf(path) || !valueAt(before as JsonObject | null, path)) insert(own.fieldsV1, path);
  own.time = timestamp(manager.now.getTime());
  setManagedFields(after, united(entries));
}

function united(entries: ManagedFields[]): ManagedFields[] {
  const updates = entries
    .filter((entry) => entry.operation === 'Update')
    .sort((a, b) => ((a.time ?? '') < (b.time ?? '') ? -1 : 1));
  const surplus = updates.slice(0, Math.max(0, updates.length - MOST_UPDATERS));
  const [first] = surplus;
  if (!first) return entries;
  const ancient: ManagedFields = { ...first, manager: ANCIENT, fieldsV1: {} };
  delete ancient.subresource;
  for (const entry of surplus) for (const path of members(entry.fieldsV1)) insert(ancient.fieldsV1, path);
  return [...entries.filter((entry) => !surplus.includes(entry)), ancient];
}
