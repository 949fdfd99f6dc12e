import { timestamp } from '../kube/timestamp.ts';
import {
  type FieldPath,
  type FieldSet,
  fieldSetOf,
  holds,
  keyElement,
  listMerge,
  members,
  pathText,
  reaches,
  remove,
  removeValue,
  valueAt,
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
  /** Status has a subresource of its own. */
  readonly hasStatus: boolean;
}

interface FieldConflict {
  readonly entry: ManagedFields;
  readonly path: FieldPath;
}

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
/** Entries that `kubectl apply --server-side` takes over from `kubectl apply` without a conflict. */
const CLIENT_SIDE = ['kubectl-client-side-apply', 'before-first-apply'];

/**
 * Server-side apply (KEP-555): merges what a manager applies into the current object (null: there is none), takes out
 * what it applied before and no longer does, and records what it owns. Throws StatusError 409 listing the fields that
 * others have set to other values, unless forced.
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
  const conflicts = findConflicts(own, others, config, current);
  const serious = conflicts.filter(({ entry }) => !isTakenOver(entry, manager, current));
  if (serious.length > 0 && !options.force) throw conflictError(serious);
  for (const { entry, path } of conflicts) remove(entry.fieldsV1, path);

  const start: JsonObject = current
    ? (structuredClone(current) as JsonObject)
    : { apiVersion: applied.apiVersion, kind: applied.kind, metadata: {} };
  const previous = entries.find(isOurs);
  if (previous) {
    // An item comes before its fields, so that its key fields still tell it apart.
    for (const path of members(previous.fieldsV1)) {
      const stillOwned = reaches(own, path) || others.some((entry) => reaches(entry.fieldsV1, path));
      if (!stillOwned) removeValue(start, path);
    }
  }
  const object = merge(start, config, schema) as ApiObject;
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

/** What of the applied object counts: status only through its own door, and nothing else there. */
function configOf(applied: ApiObject, options: ApplyOptions): JsonObject {
  const { managedFields: _given, ...metadata } = applied.metadata;
  const config = { ...applied, metadata } as unknown as JsonObject;
  if (options.manager.subresource === 'status') {
    return config['status'] === undefined ? {} : { status: config['status'] };
  }
  if (options.hasStatus) delete config['status'];
  return config;
}

/** The owner of what was there before anybody applied. */
function beforeFirstApply(
  current: ApiObject,
  schema: FieldSchema | null,
  options: ApplyOptions,
): ManagedFields {
  const { apiVersion, now } = options.manager;
  return {
    manager: 'before-first-apply',
    operation: 'Update',
    apiVersion,
    time: timestamp(now.getTime()),
    fieldsType: 'FieldsV1',
    fieldsV1: fieldSetOf(current as JsonObject, schema),
  };
}

function findConflicts(
  own: FieldSet,
  others: readonly ManagedFields[],
  config: JsonObject,
  current: ApiObject | null,
): FieldConflict[] {
  // Items of lists may be shared; their fields may not.
  const paths = members(own).filter((path) => path.at(-1)?.startsWith('f:'));
  const differing = paths.filter(
    (path) => !equal(valueAt(config, path), valueAt(current as JsonObject | null, path)),
  );
  return others.flatMap((entry) =>
    differing.filter((path) => holds(entry.fieldsV1, path)).map((path) => ({ entry, path })),
  );
}

/** `kubectl apply --server-side` goes on where `kubectl apply` was used before. */
function isTakenOver(entry: ManagedFields, manager: FieldManager, current: ApiObject | null): boolean {
  const annotations = current?.metadata.annotations as Record<string, string> | undefined;
  return (
    manager.name === 'kubectl' &&
    entry.operation === 'Update' &&
    CLIENT_SIDE.includes(entry.manager) &&
    annotations?.[LAST_APPLIED] !== undefined
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
      : `${message}:\n${list.map((cause) => `- ${cause.field}`).join('\n')}`,
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

function merge(current: Json | undefined, applied: Json, schema: FieldSchema | null): Json {
  if (isObject(applied)) {
    if (schema?.atomic) return applied;
    const result: JsonObject = isObject(current) ? { ...current } : {};
    for (const [field, value] of Object.entries(applied)) {
      if (value === null) delete result[field];
      else if (value !== undefined) result[field] = merge(result[field], value, schema?.field(field) ?? null);
    }
    return result;
  }
  const keys = Array.isArray(applied) ? listMerge(schema) : null;
  if (!Array.isArray(applied) || !keys || !Array.isArray(current)) return applied;
  if (keys === 'set') {
    return [...current, ...applied.filter((item) => !current.some((other) => equal(item, other)))];
  }
  const result = [...current];
  for (const item of applied) {
    if (!isObject(item)) continue;
    const id = keyElement(item, keys);
    const index = result.findIndex((other) => isObject(other) && keyElement(other, keys) === id);
    const merged = merge(index < 0 ? undefined : result[index], item, schema?.items ?? null);
    if (index >= 0) result[index] = merged;
    else result.push(merged);
  }
  return result;
}
