import { timestamp } from '../kube/timestamp.ts';
import { LAST_APPLIED_ANNOTATION } from '../kube/well-known-labels.ts';
import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { compareFields } from './field-comparison.ts';
import {
  createValueReader,
  editFieldSet,
  type FieldPath,
  type FieldSet,
  fieldSetOf,
  hasField,
  hasFieldAtOrBelow,
  isMemberAbove,
  isUnmanaged,
  keyElement,
  listMerge,
  members,
  pathText,
  removeValues,
} from './field-set.ts';
import {
  type FieldManager,
  type ManagedFields,
  managedFieldsOf,
  setManagedFields,
} from './managed-fields.ts';
import { type ApiObject, equal, isObject, type Json, type JsonObject } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';
import { StatusError } from './status-error.ts';

export interface ApplyOptions {
  readonly manager: FieldManager;
  readonly force: boolean;
  /** An object of the kind without any value. */
  readonly empty: object;
  /** Status has a separate subresource. */
  readonly hasStatus: boolean;
  /** The kind is defined by a CustomResourceDefinition. */
  readonly isCustom?: boolean;
  /** Brings a merged object into the form in which it is stored: an applied null is owned, but it is an absent field. */
  normalise(object: ApiObject): void;
}

interface FieldConflict {
  readonly entry: ManagedFields;
  readonly path: FieldPath;
}

/** Entries that `kubectl apply --server-side` takes over from `kubectl apply` without a conflict. */
const CLIENT_SIDE = ['kubectl-client-side-apply', 'before-first-apply'];

/**
 * Implements server-side apply (KEP-555): merges the applied fields into the current object (null: it does not exist),
 * removes fields that the manager applied earlier but not now, and records the manager's fields. Throws StatusError 409
 * with the fields that other managers have set to other values, unless forced.
 */
export function applyServerSide(
  current: ApiObject | null,
  applied: ApiObject,
  schema: FieldSchema | null,
  options: ApplyOptions,
): ApiObject {
  const { manager } = options;
  const config = configOf(applied, options);
  const own = fieldSetOf(config, schema);
  const entries = current ? managedFieldsOf(current) : [];
  if (current && entries.length === 0) entries.push(beforeFirstApply(current, schema, options));
  const isOurs = (entry: ManagedFields) =>
    entry.manager === manager.name &&
    entry.operation === 'Apply' &&
    (entry.subresource ?? '') === manager.subresource;
  const others = entries.filter((entry) => !isOurs(entry));
  const start: JsonObject = current
    ? (structuredClone(current) as JsonObject)
    : { apiVersion: applied.apiVersion, kind: applied.kind, metadata: {} };
  const object = mergeApplied(start, config, schema) as ApiObject;
  const conflicts = findConflicts(own, others, { config, merged: object as JsonObject, current }, schema);
  const serious = conflicts.filter(({ entry }) => !isTakenOver(entry, manager, current));
  if (serious.length > 0 && !options.force) throw conflictError(serious);
  const editors = new Map(others.map((entry) => [entry, editFieldSet(entry.fieldsV1)]));
  for (const { entry, path } of conflicts) editors.get(entry)?.remove(path);

  const previous = entries.find(isOurs);
  if (previous) {
    // An item precedes its fields, so that its key fields still identify it.
    const stale = members(previous.fieldsV1).filter(
      (path) =>
        !hasFieldAtOrBelow(own, path) && !others.some((entry) => hasFieldAtOrBelow(entry.fieldsV1, path)),
    );
    removeValues(object as JsonObject, stale, schema);
  }
  options.normalise(object);
  renewLastApplied(object, applied, current, manager);
  const unchanged =
    previous &&
    current &&
    equal(previous.fieldsV1, own) &&
    equal(withoutManagers(object), withoutManagers(current));
  setManagedFields(object, [
    ...others,
    {
      manager: manager.name,
      operation: 'Apply',
      apiVersion: manager.apiVersion,
      time: unchanged && previous.time ? previous.time : timestamp(manager.now.getTime()),
      fieldsType: 'FieldsV1',
      fieldsV1: own,
      ...(manager.subresource ? { subresource: manager.subresource } : {}),
    },
  ]);
  return object;
}

/**
 * Selects the relevant part of the applied object: the status only in its subresource, and then nothing else. Of custom
 * objects, upstream leaves out only what it knows beside the status: other fields are owned, though not stored.
 */
function configOf(applied: ApiObject, options: ApplyOptions): JsonObject {
  const { managedFields: _given, ...metadata } = applied.metadata;
  const config = { ...applied, metadata } as unknown as JsonObject;
  if (options.manager.subresource === 'status' && options.isCustom) {
    const { apiVersion: _version, kind: _kind, metadata: _metadata, spec: _spec, ...others } = config;
    return others;
  }
  if (options.manager.subresource === 'status') {
    return config['status'] === undefined ? {} : { status: config['status'] };
  }
  if (options.hasStatus) delete config['status'];
  return config;
}

/** Returns the owner of the state before the first apply. */
function beforeFirstApply(
  current: ApiObject,
  schema: FieldSchema | null,
  options: ApplyOptions,
): ManagedFields {
  const { apiVersion, now, subresource } = options.manager;
  const { spec: _spec, ...others } = current as JsonObject;
  const known = subresource === 'status' && options.isCustom ? others : (current as JsonObject);
  return {
    manager: 'before-first-apply',
    operation: 'Update',
    apiVersion,
    time: timestamp(now.getTime()),
    fieldsType: 'FieldsV1',
    fieldsV1: fieldsSince(options.empty as JsonObject, known, schema),
  };
}

/** Returns the fields of an object that `before` does not have. */
function fieldsSince(before: JsonObject, after: JsonObject, schema: FieldSchema | null): FieldSet {
  const set: FieldSet = {};
  const { added, modified } = compareFields(before, after, schema, isUnmanaged);
  const editor = editFieldSet(set);
  for (const path of [...added, ...modified]) editor.insert(path);
  return set;
}

/** An apply that gives maps and lists whose members are merged changes only what differs after the merge. */
function findConflicts(
  own: FieldSet,
  others: readonly ManagedFields[],
  { config, merged, current }: { config: JsonObject; merged: JsonObject; current: ApiObject | null },
  schema: FieldSchema | null,
): FieldConflict[] {
  // List items may be shared; their fields may not.
  const paths = members(own).filter((path) => path.at(-1)?.startsWith('f:'));
  const read = createValueReader(schema);
  const value = (path: string[]) => read(current as JsonObject | null, path);
  const differing = paths.filter((path) => !equal(read(merged, path), value(path)));
  // Maps may be shared, too, but for their members; null is one without any.
  const isMap = (found: Json | undefined) => found === null || isObject(found);
  const isShared = (set: FieldSet, path: string[]) =>
    isMemberAbove(own, path) ? isMap(value(path)) : read(config, path) === null && isMemberAbove(set, path);
  return others.flatMap((entry) =>
    differing
      .filter((path) => hasField(entry.fieldsV1, path) && !isShared(entry.fieldsV1, path))
      .map((path) => ({ entry, path })),
  );
}

/** `kubectl apply --server-side` continues after `kubectl apply`. */
function isTakenOver(entry: ManagedFields, manager: FieldManager, current: ApiObject | null): boolean {
  const annotations = current?.metadata.annotations as Record<string, string> | undefined;
  return (
    manager.name === 'kubectl' &&
    entry.operation === 'Update' &&
    CLIENT_SIDE.includes(entry.manager) &&
    annotations?.[LAST_APPLIED_ANNOTATION] !== undefined
  );
}

function conflictError(conflicts: readonly FieldConflict[]): StatusError {
  const causes = conflicts.map(({ entry, path }) => ({
    reason: 'FieldManagerConflict',
    message: `conflict with ${managerText(entry)}`,
    field: pathText(path),
  }));
  const byManager = Map.groupBy(causes, (cause) => cause.message);
  const texts = [...byManager].map(([message, list]) =>
    list.length === 1
      ? `${message}: ${list[0]?.field}`
      : `${message.replace('conflict', 'conflicts')}:\n${list.map((cause) => `- ${cause.field}`).join('\n')}`,
  );
  const count = `${causes.length} ${causes.length === 1 ? 'conflict' : 'conflicts'}`;
  return new StatusError(409, 'Conflict', `Apply failed with ${count}: ${texts.join('\n')}`, { causes });
}

function managerText(entry: ManagedFields): string {
  const door = entry.subresource ? ` with subresource ${JSON.stringify(entry.subresource)}` : '';
  const name = `${JSON.stringify(entry.manager)}${door}`;
  if (entry.operation === 'Apply') return name;
  return `${name} using ${entry.apiVersion}${entry.time ? ` at ${entry.time}` : ''}`;
}

const withoutManagers = (object: ApiObject) => ({
  ...object,
  metadata: { ...object.metadata, managedFields: undefined },
});

/** Updates the annotation of `kubectl apply` when `kubectl apply --server-side` takes over. */
function renewLastApplied(
  object: ApiObject,
  applied: ApiObject,
  current: ApiObject | null,
  manager: FieldManager,
): void {
  const old = current?.metadata.annotations as Record<string, string> | undefined;
  if (manager.name !== 'kubectl' || old?.[LAST_APPLIED_ANNOTATION] === undefined) return;
  const { managedFields: _entries, annotations, ...metadata } = applied.metadata;
  const { [LAST_APPLIED_ANNOTATION]: _last, ...others } = annotations ?? {};
  const written = Object.keys(others).length > 0 ? { ...metadata, annotations: others } : metadata;
  const text = `${sortedJson({ ...applied, metadata: written })}\n`;
  object.metadata.annotations = { ...object.metadata.annotations, [LAST_APPLIED_ANNOTATION]: text };
}

function sortedJson(value: unknown): string {
  return JSON.stringify(value, (_key, one: unknown) =>
    typeof one === 'object' && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}

/** Merges an applied value into the current one by list keys and atomic fields; changes neither. */
export function mergeApplied(current: Json | undefined, applied: Json, schema: FieldSchema | null): Json {
  if (isObject(applied)) {
    if (schema?.atomic) return applied;
    const result: JsonObject = isObject(current) ? { ...current } : {};
    for (const [field, value] of Object.entries(applied)) {
      if (value === undefined) continue;
      const member = schema?.field(field) ?? null;
      const before = ownMember(result, field);
      // A map or list whose members are merged counts null as none of them.
      if (value === null && hasMembers(before, member)) continue;
      setOwnMember(result, field, value === null ? null : mergeApplied(before, value, member));
    }
    return result;
  }
  const keys = Array.isArray(applied) ? listMerge(schema) : null;
  if (!Array.isArray(applied) || !keys || !Array.isArray(current)) return applied;
  const identity = (item: Json) =>
    keys === 'set' || !isObject(item) ? JSON.stringify(item) : keyElement(item, keys);
  const both = (item: Json | undefined, other: Json) =>
    keys === 'set' ? other : mergeApplied(item, other, schema?.items ?? null);
  return mergeLists(current, applied, identity, both);
}

const hasMembers = (value: Json | undefined, schema: FieldSchema | null): boolean =>
  (isObject(value) && !schema?.atomic) || (Array.isArray(value) && listMerge(schema) !== null);

/**
 * Merges two lists: items in both have the order of `applied`, the others keep their position between them
 * (structured-merge-diff's mergingWalker).
 */
function mergeLists(
  current: readonly Json[],
  applied: readonly Json[],
  identity: (item: Json) => string,
  both: (item: Json | undefined, other: Json) => Json,
): Json[] {
  const here = new Map(current.map((item) => [identity(item), item]));
  const wanted = new Set(applied.map(identity));
  const shared = applied.map(identity).filter((id) => here.has(id));
  const merged = new Set<string>();
  const result: Json[] = [];
  let next = shared.shift();
  let left = 0;
  let right = 0;
  const take = (item: Json, id: string) => {
    merged.add(id);
    result.push(both(here.get(id), item));
    right++;
    if (next === id) next = shared.shift();
  };
  while (left < current.length || right < applied.length) {
    const ours = current[left];
    const theirs = applied[right];
    const leftId = ours === undefined ? undefined : identity(ours);
    const rightId = theirs === undefined ? undefined : identity(theirs);
    if (ours !== undefined && theirs !== undefined && leftId !== undefined && rightId !== undefined) {
      if (leftId === rightId) {
        take(theirs, rightId);
        left++;
        continue;
      }
      if (wanted.has(leftId) && next !== undefined && next !== leftId) {
        // An item in both lists, but not the next one.
        left++;
        continue;
      }
    }
    if (ours !== undefined && leftId !== undefined) {
      if (!wanted.has(leftId)) {
        result.push(ours);
        left++;
        continue;
      }
      if (merged.has(leftId)) {
        left++;
        continue;
      }
    }
    if (theirs !== undefined && rightId !== undefined) take(theirs, rightId);
  }
  return result;
}
