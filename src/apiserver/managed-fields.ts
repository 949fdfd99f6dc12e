import { timestamp } from '../kube/timestamp.ts';
import { compareFields } from './field-comparison.ts';
import { orderedFields } from './field-order.ts';
import { editFieldSet, type FieldSet, isUnmanaged, members, shortenMembers } from './field-set.ts';
import type { ApiObject, JsonObject } from './object.ts';
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

/** The client that writes, and the kind of request. */
export interface FieldManager {
  readonly name: string;
  readonly apiVersion: string;
  readonly subresource: string;
  readonly now: Date;
}

/** Entries of updates above this number are merged, oldest first (as upstream). */
const MAX_UPDATERS = 10;
const ANCIENT = 'ancient-changes';

/** Returns the entries of an object; none if a client has cleared them. */
export function managedFieldsOf(object: ApiObject): ManagedFields[] {
  const entries = structuredClone((object.metadata.managedFields ?? []) as unknown as ManagedFields[]);
  return entries.filter((entry) => entry.fieldsV1 !== undefined);
}

/** Reports whether a client cleared the entries, with one empty entry. An empty list means "unchanged". */
export function isCleared(object: ApiObject): boolean {
  const entries = object.metadata.managedFields ?? [];
  return entries.length === 1 && Object.keys(entries[0] ?? {}).length === 0;
}

export function setManagedFields(object: ApiObject, entries: readonly ManagedFields[]): void {
  const kept = entries.filter((entry) => Object.keys(entry.fieldsV1).length > 0);
  for (const entry of kept) {
    shortenMembers(entry.fieldsV1);
    entry.fieldsV1 = orderedFields(entry.fieldsV1);
  }
  kept.sort(inUpstreamsOrder);
  // An empty list would be read as omitted by the client.
  const written = kept.length > 0 ? kept : [{}];
  object.metadata.managedFields = written as unknown as NonNullable<ApiObject['metadata']['managedFields']>;
}

/** Compares entries as structured-merge-diff orders them: those of applies first, then by time. */
function inUpstreamsOrder(a: ManagedFields, b: ManagedFields): number {
  for (const [one, other] of [
    [a.operation, b.operation],
    [a.time ?? '', b.time ?? ''],
    [a.manager, b.manager],
    [a.apiVersion, b.apiVersion],
    [a.subresource ?? '', b.subresource ?? ''],
  ] as const)
    if (one !== other) return one < other ? -1 : 1;
  return 0;
}

/**
 * Records in `after` the changes of an update (any write except apply): the changed fields become the manager's and are
 * removed from all other managers. For a creation, `before` is an object of the kind without any value.
 */
export function recordUpdate(
  before: ApiObject,
  after: ApiObject,
  schema: FieldSchema | null,
  manager: FieldManager,
): void {
  const { added, modified, removed } = compareFields(
    before as JsonObject,
    after as JsonObject,
    schema,
    isUnmanaged,
  );
  const entries = managedFieldsOf(after.metadata.managedFields === undefined ? before : after);
  const changed = [...added, ...modified];
  if (changed.length === 0 && removed.length === 0) {
    if (entries.length > 0) setManagedFields(after, entries);
    return;
  }
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
  for (const entry of entries) {
    const editor = editFieldSet(entry.fieldsV1);
    for (const path of removed) editor.dropMember(path);
    for (const path of changed) {
      if (entry === own) editor.insert(path);
      else editor.dropMember(path);
    }
  }
  own.time = timestamp(manager.now.getTime());
  setManagedFields(after, united(entries));
}

function united(entries: ManagedFields[]): ManagedFields[] {
  const updates = entries
    .filter((entry) => entry.operation === 'Update')
    .sort((a, b) => ((a.time ?? '') < (b.time ?? '') ? -1 : 1));
  const surplus = updates.slice(0, Math.max(0, updates.length - MAX_UPDATERS));
  const [first] = surplus;
  if (!first) return entries;
  const ancient: ManagedFields = { ...first, manager: ANCIENT, fieldsV1: {} };
  delete ancient.subresource;
  const editor = editFieldSet(ancient.fieldsV1);
  for (const entry of surplus) for (const path of members(entry.fieldsV1)) editor.insert(path);
  return [...entries.filter((entry) => !surplus.includes(entry)), ancient];
}
