import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { isObject, type Json, type JsonObject } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';

/**
 * A set of fields in the form of meta/v1 FieldsV1: "f:NAME", "k:{KEYS}" and "v:VALUE" lead to subtrees; "." is the node
 * itself.
 */
export interface FieldSet {
  [element: string]: FieldSet;
}

/** The path elements of one field. */
export type FieldPath = readonly string[];

/** Fields that belong to the server or to the object's identity, never to a manager. */
const UNMANAGED = new Set([
  'f:apiVersion',
  'f:kind',
  'f:metadata/f:name',
  'f:metadata/f:namespace',
  'f:metadata/f:uid',
  'f:metadata/f:resourceVersion',
  'f:metadata/f:creationTimestamp',
  'f:metadata/f:deletionTimestamp',
  'f:metadata/f:deletionGracePeriodSeconds',
  'f:metadata/f:generation',
  'f:metadata/f:managedFields',
  'f:metadata/f:selfLink',
]);

/** Reports whether a field belongs to the server or to the object's identity. */
export const isUnmanaged = (path: FieldPath): boolean => UNMANAGED.has(path.join('/'));

/** How the items of a list are identified. */
export type ListIdentity =
  | 'set'
  | {
      /** The key fields, in alphabetical order. */
      readonly keys: readonly string[];
      /** The values of absent key fields. */
      readonly defaults: Readonly<Record<string, Json>>;
    };

const identities = new WeakMap<FieldSchema, ListIdentity | null>();

/** Returns how a list merges: by the key fields of its items, as a set of values, or not at all (null). */
export function listMerge(schema: FieldSchema | null): ListIdentity | null {
  if (schema?.kind !== 'list') return null;
  if (schema.listType === 'set') return 'set';
  if (schema.listType !== 'map' || schema.listKeys.length === 0) return null;
  let identity = identities.get(schema);
  if (!identity) {
    const defaults: Record<string, Json> = {};
    for (const key of schema.listKeys) {
      const value = schema.items?.field(key)?.default;
      if (value !== undefined) setOwnMember(defaults, key, value);
    }
    identity = { keys: [...schema.listKeys].sort(), defaults };
    identities.set(schema, identity);
  }
  return identity;
}

/**
 * Returns the fields that an object sets; lists and maps that are replaced as a whole are single fields. An empty map
 * counts as a field; an empty list whose items are owned individually does not. A member that its schema does not declare,
 * as in a map, is a field besides those below it (structured-merge-diff's toFieldSetWalker).
 */
export function fieldSetOf(value: JsonObject, schema: FieldSchema | null, path: FieldPath = []): FieldSet {
  const set: FieldSet = {};
  for (const [field, child] of Object.entries(value)) {
    if (child === undefined) continue;
    const element = `f:${field}`;
    if (path.length < 2 && UNMANAGED.has([...path, element].join('/'))) continue;
    const member = schema?.field(field) ?? null;
    // Every key of a map is a field.
    const below = subset(child, member, [...path, element]) ?? (schema?.kind === 'map' ? {} : null);
    if (below && Object.keys(below).length > 0 && !isDeclared(schema, member)) below['.'] = {};
    // Identifying fields of metadata do not belong to a manager.
    if (below && (element !== 'f:metadata' || path.length > 0 || Object.keys(below).length > 0)) {
      set[element] = below;
    }
  }
  return set;
}

const isDeclared = (schema: FieldSchema | null, member: FieldSchema | null) =>
  schema?.kind === 'object' && member !== null && member.isUndeclared !== true;

/** Returns null if nothing at or below the value is owned. */
function subset(value: Json, schema: FieldSchema | null, path: FieldPath): FieldSet | null {
  if (isObject(value)) {
    if (schema?.atomic) return {};
    const set = fieldSetOf(value, schema, path);
    return Object.keys(set).length === 0 && Object.keys(value).length > 0 ? null : set;
  }
  if (!Array.isArray(value)) return {};
  const keys = listMerge(schema);
  if (keys === null) return {};
  if (value.length === 0) return null;
  if (keys === 'set') return Object.fromEntries(value.map((item) => [`v:${JSON.stringify(item)}`, {}]));
  return Object.fromEntries(
    value.filter(isObject).map((item) => {
      const id = keyElement(item, keys);
      if (schema?.items?.atomic) return [id, {}];
      return [id, { '.': {}, ...fieldSetOf(item, schema?.items ?? null, [...path, id]) }];
    }),
  );
}

/** Formats "k:{…}", which identifies an item of a list. */
export function keyElement(item: JsonObject, { keys, defaults }: Exclude<ListIdentity, 'set'>): string {
  const id: JsonObject = {};
  for (const key of keys) {
    const value = ownMember(item, key) ?? ownMember(defaults, key);
    if (value !== undefined) setOwnMember(id, key, value);
  }
  return `k:${JSON.stringify(id)}`;
}

/** Returns the paths of a set's members. */
export function members(set: FieldSet, path: FieldPath = []): string[][] {
  const entries = Object.entries(set);
  if (entries.length === 0) return path.length > 0 ? [[...path]] : [];
  return entries.flatMap(([element, child]) =>
    element === '.' ? [[...path]] : members(child, [...path, element]),
  );
}

/** Reports whether the field is a member of the set. */
export function hasField(set: FieldSet, path: FieldPath): boolean {
  const node = nodeAt(set, path);
  return node !== undefined && (node['.'] !== undefined || Object.keys(node).length === 0);
}

/** Reports whether the set contains the field or a field below it. */
export function hasFieldAtOrBelow(set: FieldSet, path: FieldPath): boolean {
  return nodeAt(set, path) !== undefined;
}

/** Reports whether the field is a member of the set besides fields below it: as a map or an item, not as a value. */
export function isMemberAbove(set: FieldSet, path: FieldPath): boolean {
  return nodeAt(set, path)?.['.'] !== undefined;
}

function nodeAt(set: FieldSet, path: FieldPath): FieldSet | undefined {
  let node: FieldSet | undefined = set;
  for (const element of path) node = ownMember(node, element);
  return node;
}

/** Changes a set. */
export interface FieldSetEditor {
  /** Adds a field itself, without the fields below it. */
  insert(path: FieldPath): void;
  /** Removes a field, but not the fields below it. */
  dropMember(path: FieldPath): void;
  /** Removes a field and the fields below it. */
  remove(path: FieldPath): void;
}

/**
 * Edits a set in time proportional to the number of changes: the elements of a node, of which a ConfigMap may have
 * 300,000, are counted only once. While the editor is in use, nothing else may change the set.
 */
export function editFieldSet(set: FieldSet): FieldSetEditor {
  const sizes = new Map<FieldSet, number>();
  const sizeOf = (node: FieldSet): number => {
    const known = sizes.get(node);
    if (known !== undefined) return known;
    const size = Object.keys(node).length;
    sizes.set(node, size);
    return size;
  };
  const add = (node: FieldSet, element: string): FieldSet => {
    const present = ownMember(node, element);
    if (present !== undefined) return present;
    const child: FieldSet = {};
    sizes.set(node, sizeOf(node) + 1);
    setOwnMember(node, element, child);
    return child;
  };
  const drop = (node: FieldSet, element: string) => {
    if (ownMember(node, element) === undefined) return;
    sizes.set(node, sizeOf(node) - 1);
    delete node[element];
  };
  const dropMember = (node: FieldSet, path: FieldPath, at: number) => {
    const element = path[at];
    const child = element === undefined ? undefined : ownMember(node, element);
    if (element === undefined || !child) return;
    if (at + 1 < path.length) {
      const wasLeaf = sizeOf(child) === 0;
      dropMember(child, path, at + 1);
      if (!wasLeaf && sizeOf(child) === 0) drop(node, element);
    } else {
      drop(child, '.');
      if (sizeOf(child) === 0) drop(node, element);
    }
  };
  const remove = (node: FieldSet, path: FieldPath, at: number) => {
    const element = path[at];
    const child = element === undefined ? undefined : ownMember(node, element);
    if (element === undefined || !child) return;
    const isLast = at + 1 === path.length;
    if (!isLast) remove(child, path, at + 1);
    if (isLast || sizeOf(child) === 0) drop(node, element);
  };
  return {
    insert(path) {
      let node = set;
      let existed = true;
      for (const element of path) {
        // A member with nothing below it is stored as {}: adding fields below it must preserve its membership.
        if (node !== set && existed && sizeOf(node) === 0) add(node, '.');
        existed = ownMember(node, element) !== undefined;
        node = add(node, element);
      }
      if (existed && sizeOf(node) > 0) add(node, '.');
    },
    dropMember: (path) => dropMember(set, path, 0),
    remove: (path) => remove(set, path, 0),
  };
}

/** Reads the value of a field; undefined if absent. */
export type ValueReader = (object: JsonObject | null, path: FieldPath) => Json | undefined;

/**
 * Returns a reader for many fields, which finds the items of a list by an index that it builds once. Later changes of a
 * list are not seen.
 */
export function createValueReader(schema: FieldSchema | null): ValueReader {
  /** By list, and by the names of the key fields; "": by the items themselves. */
  const indexes = new Map<readonly Json[], Map<string, ReadonlyMap<string, Json>>>();
  const indexOf = (list: readonly Json[], identity: ListIdentity): ReadonlyMap<string, Json> => {
    const ofList = indexes.get(list) ?? new Map<string, ReadonlyMap<string, Json>>();
    indexes.set(list, ofList);
    const name = identity === 'set' ? '' : identity.keys.join();
    const known = ofList.get(name);
    if (known) return known;
    const index = new Map<string, Json>();
    for (const item of list) {
      const text = itemText(item, identity);
      // The first of equal items counts.
      if (text !== null && !index.has(text)) index.set(text, item);
    }
    ofList.set(name, index);
    return index;
  };
  const step = (value: Json | undefined, element: string, at: FieldSchema | null): Json | undefined => {
    if (element.startsWith('f:')) return isObject(value) ? ownMember(value, element.slice(2)) : undefined;
    if (!Array.isArray(value)) return undefined;
    const id = JSON.parse(element.slice(2)) as Json;
    const own = listMerge(at);
    // The owners of fields may have been recorded for an earlier schema, with other keys.
    const keys = element.startsWith('k:') && isObject(id) ? Object.keys(id).sort() : null;
    const defaults = own !== null && own !== 'set' ? own.defaults : {};
    const identity = keys === null ? 'set' : { keys, defaults };
    return indexOf(value, identity).get(itemText(id, identity) ?? '');
  };
  return (object, path) => {
    let value: Json | undefined = object ?? undefined;
    let at = schema;
    for (const element of path) {
      value = step(value, element, at);
      at = (element.startsWith('f:') ? at?.field(element.slice(2)) : at?.items) ?? null;
    }
    return value;
  };
}

/** Formats an item of a list for comparison: by its key fields, or as a whole. Null: it cannot have keys. */
function itemText(item: Json, identity: ListIdentity): string | null {
  if (identity === 'set') return JSON.stringify(item);
  return isObject(item) ? keyElement(item, identity) : null;
}

/** Removes the values of fields from an object. */
export function removeValues(
  object: JsonObject,
  paths: Iterable<FieldPath>,
  schema: FieldSchema | null,
): void {
  const read = createValueReader(schema);
  const items = new Map<Json[], Set<Json>>();
  for (const path of paths) {
    const parent = read(object, path.slice(0, -1));
    const last = path.at(-1) ?? '';
    if (last.startsWith('f:') && isObject(parent)) delete parent[last.slice(2)];
    else if (Array.isArray(parent)) {
      const item = read(object, path);
      const doomed = items.get(parent) ?? new Set();
      items.set(parent, doomed);
      if (item !== undefined) doomed.add(item);
    }
  }
  for (const [list, doomed] of items) {
    // Of equal values only the first is removed.
    const kept = list.filter((item) => !doomed.delete(item));
    list.length = 0;
    for (const item of kept) list.push(item);
  }
}

/** Formats a path as upstream does: `.spec.containers[name="web"].image`. */
export function pathText(path: FieldPath): string {
  return path
    .map((element) => {
      if (element.startsWith('f:')) return `.${element.slice(2)}`;
      const id = JSON.parse(element.slice(2)) as Json;
      if (!isObject(id)) return `[=${JSON.stringify(id)}]`;
      const keys = Object.entries(id).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
      return `[${keys.join(',')}]`;
    })
    .join('');
}

/** Writes members with nothing below them as {}, as upstream does. */
export function shortenMembers(set: FieldSet): void {
  for (const child of Object.values(set)) {
    const elements = Object.keys(child);
    if (elements.length === 1 && elements[0] === '.') delete child['.'];
    else shortenMembers(child);
  }
}
