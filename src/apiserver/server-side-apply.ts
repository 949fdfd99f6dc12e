import { apiVersionOf, type Kind } from './kind.ts';
import { listKeys } from './list-keys.ts';
import { type ApiObject, equal, isObject, type Json, type JsonObject } from './object.ts';
import { StatusError } from './status-error.ts';

export interface ApplyOptions {
  readonly manager: string;
  readonly force: boolean;
  readonly subresource: string;
  readonly now: Date;
}

/** A FieldsV1 tree: "f:NAME", "k:{KEYS}" and "v:VALUE" lead to subtrees; "." is the node itself. */
interface FieldTree {
  [element: string]: FieldTree;
}

interface ManagedFields {
  manager: string;
  operation: string;
  apiVersion: string;
  time?: string;
  fieldsType: string;
  fieldsV1: FieldTree;
  subresource?: string;
}

/** Belong to the server or to identity, never to a manager. */
const UNMANAGED = new Set([
  'f:apiVersion',
  'f:kind',
  'f:metadata/f:name',
  'f:metadata/f:namespace',
  'f:metadata/f:uid',
  'f:metadata/f:resourceVersion',
  'f:metadata/f:creationTimestamp',
  'f:metadata/f:generation',
  'f:metadata/f:managedFields',
  'f:metadata/f:selfLink',
]);

/**
 * Server-side apply (KEP-555): merges what a manager applies into the current object (null: there is none), takes out
 * what it applied before and no longer does, and records what it owns. Throws StatusError 409 listing the fields that
 * another applier set to other values, unless forced.
 */
export function applyServerSide(
  kind: Kind,
  current: ApiObject | null,
  applied: ApiObject,
  options: ApplyOptions,
): ApiObject {
  const { managedFields: _given, ...metadata } = applied.metadata;
  const config = { ...applied, metadata } as unknown as JsonObject;
  const entries = structuredClone((current?.metadata.managedFields ?? []) as unknown as ManagedFields[]);
  const isOurs = (entry: ManagedFields) =>
    entry.manager === options.manager &&
    entry.operation === 'Apply' &&
    (entry.subresource ?? '') === options.subresource;
  const own = fieldsOf(config, []);
  const others = entries.filter((entry) => !isOurs(entry) && entry.operation === 'Apply');
  const conflicts = others.flatMap((entry) =>
    overlaps(own, entry.fieldsV1)
      .filter((path) => !equal(valueAt(config, path), valueAt(current as unknown as JsonObject, path)))
      .map((path) => ({ entry, path })),
  );
  if (conflicts.length > 0 && !options.force) {
    const causes = conflicts.map(({ entry, path }) => ({
      reason: 'FieldManagerConflict',
      message: `conflict with ${JSON.stringify(entry.manager)} using ${entry.apiVersion}`,
      field: pathText(path),
    }));
    const plural = causes.length === 1 ? 'conflict' : 'conflicts';
    throw new StatusError(
      409,
      'Conflict',
      `Apply failed with ${causes.length} ${plural}: ${causes.map((cause) => `${cause.message}: ${cause.field}`).join(', ')}`,
      { causes },
    );
  }
  for (const { entry, path } of conflicts) removePath(entry.fieldsV1, path);

  let result = (current
    ? structuredClone(current)
    : { apiVersion: applied.apiVersion, kind: applied.kind, metadata: {} }) as unknown as JsonObject;
  const before = entries.find(isOurs);
  if (before) {
    for (const path of leaves(before.fieldsV1)) {
      const stillOwned = hasPath(own, path) || others.some((entry) => hasPath(entry.fieldsV1, path));
      if (!stillOwned) removeValue(result, path);
    }
  }
  result = merge(result, config, []) as JsonObject;
  const object = result as unknown as ApiObject;
  const kept = entries.filter((entry) => !isOurs(entry) && Object.keys(entry.fieldsV1).length > 0);
  const unchanged =
    before &&
    equal(before.fieldsV1, own) &&
    current &&
    equal(
      { ...object, metadata: { ...object.metadata, managedFields: null } },
      { ...current, metadata: { ...current.metadata, managedFields: null } },
    );
  object.metadata.managedFields = [
    ...kept,
    {
      manager: options.manager,
      operation: 'Apply',
      apiVersion: apiVersionOf(kind),
      time: unchanged && before.time ? before.time : `${options.now.toISOString().slice(0, 19)}Z`,
      fieldsType: 'FieldsV1',
      fieldsV1: own,
      ...(options.subresource ? { subresource: options.subresource } : {}),
    },
  ] as unknown as NonNullable<ApiObject['metadata']['managedFields']>;
  return object;
}

/** The fields that an applied object names. */
function fieldsOf(value: JsonObject, path: readonly string[]): FieldTree {
  const tree: FieldTree = {};
  for (const [field, child] of Object.entries(value)) {
    if (child === undefined) continue;
    const element = `f:${field}`;
    if (UNMANAGED.has([...path, element].join('/'))) continue;
    const keys = Array.isArray(child) ? listKeys(field, path) : null;
    if (isObject(child) && Object.keys(child).length > 0) tree[element] = fieldsOf(child, [...path, element]);
    else if (Array.isArray(child) && keys === 'set') {
      tree[element] = Object.fromEntries(child.map((item) => [`v:${JSON.stringify(item)}`, {}]));
    } else if (Array.isArray(child) && keys && keys !== 'set') {
      tree[element] = Object.fromEntries(
        child.filter(isObject).map((item) => {
          const id = keyElement(item, keys);
          return [id, { '.': {}, ...fieldsOf(item, [...path, element, id]) }];
        }),
      );
    } else tree[element] = {};
  }
  return tree;
}

function keyElement(item: JsonObject, keys: readonly string[]): string {
  const id = Object.fromEntries(keys.filter((key) => item[key] !== undefined).map((key) => [key, item[key]]));
  if (keys.includes('protocol')) id['protocol'] ??= 'TCP';
  return `k:${JSON.stringify(id)}`;
}

/** Paths of the leaves of a tree. */
function leaves(tree: FieldTree, path: readonly string[] = []): string[][] {
  const entries = Object.entries(tree);
  if (entries.length === 0) return path.length > 0 ? [[...path]] : [];
  return entries.flatMap(([element, child]) =>
    element === '.' ? [[...path]] : leaves(child, [...path, element]),
  );
}

function hasPath(tree: FieldTree, path: readonly string[]): boolean {
  let node: FieldTree | undefined = tree;
  for (const element of path) {
    node = node?.[element];
    if (!node) return false;
  }
  return true;
}

/** Leaves that both trees own, or where one owns a leaf above the other's. List items themselves may be shared. */
function overlaps(a: FieldTree, b: FieldTree): string[][] {
  return leaves(a).filter(
    (path) => !path.at(-1)?.startsWith('k:') && !path.at(-1)?.startsWith('v:') && hasPath(b, path),
  );
}

function removePath(tree: FieldTree, path: readonly string[]): void {
  const [element, ...rest] = path;
  if (element === undefined) return;
  const child = tree[element];
  if (!child) return;
  if (rest.length > 0) removePath(child, rest);
  if (rest.length === 0 || Object.keys(child).length === 0) delete tree[element];
}

function merge(current: Json | undefined, applied: Json, path: readonly string[]): Json {
  if (isObject(applied)) {
    const result: JsonObject = isObject(current) ? { ...current } : {};
    for (const [field, value] of Object.entries(applied)) {
      if (value === null) delete result[field];
      else if (value !== undefined) result[field] = merge(result[field], value, [...path, `f:${field}`]);
    }
    return result;
  }
  const field = path.at(-1)?.slice(2) ?? '';
  const keys = Array.isArray(applied) ? listKeys(field, path.slice(0, -1)) : null;
  if (!Array.isArray(applied) || !keys || !Array.isArray(current)) return applied;
  if (keys === 'set')
    return [...current, ...applied.filter((item) => !current.some((other) => equal(item, other)))];
  const result = [...current];
  for (const item of applied) {
    if (!isObject(item)) continue;
    const id = keyElement(item, keys);
    const at = result.findIndex((other) => isObject(other) && keyElement(other, keys) === id);
    const merged = merge(result[at], item, [...path, id]);
    if (at >= 0) result[at] = merged;
    else result.push(merged);
  }
  return result;
}

function stepInto(value: Json | undefined, element: string): Json | undefined {
  if (element.startsWith('f:')) return isObject(value) ? value[element.slice(2)] : undefined;
  if (!Array.isArray(value)) return undefined;
  const id = JSON.parse(element.slice(2)) as Json;
  if (element.startsWith('v:')) return value.find((item) => equal(item, id));
  return value.find((item) => isObject(item) && isObject(id) && matchesKey(item, id));
}

function matchesKey(item: JsonObject, id: JsonObject): boolean {
  return Object.entries(id).every(([key, wanted]) =>
    equal(item[key] ?? (key === 'protocol' ? 'TCP' : undefined), wanted),
  );
}

function valueAt(object: JsonObject | null, path: readonly string[]): Json | undefined {
  let value: Json | undefined = object ?? undefined;
  for (const element of path) value = stepInto(value, element);
  return value;
}

function removeValue(object: JsonObject, path: readonly string[]): void {
  const parent = valueAt(object, path.slice(0, -1));
  const last = path.at(-1) ?? '';
  if (last.startsWith('f:') && isObject(parent)) delete parent[last.slice(2)];
  else if (Array.isArray(parent)) {
    const item = stepInto(parent, last);
    const index = item === undefined ? -1 : parent.indexOf(item);
    if (index >= 0) parent.splice(index, 1);
  }
}

/** ".spec.containers[name="web"].image", as upstream prints paths. */
function pathText(path: readonly string[]): string {
  return path
    .map((element) => {
      if (element.startsWith('f:')) return `.${element.slice(2)}`;
      const id = JSON.parse(element.slice(2)) as Json;
      return isObject(id)
        ? `[${Object.entries(id)
            .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
            .join(',')}]`
        : `[=${JSON.stringify(id)}]`;
    })
    .join('');
}
