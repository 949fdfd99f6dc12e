import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { isObject, type Json, type JsonObject, jsonType, valueText } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';
import { badRequest } from './status-error.ts';
import { checkSameTypes, goText, notApplied, wrongArgument } from './strategic-patch-errors.ts';

const DIRECTIVE = '$patch';
const RETAIN = '$retainKeys';
const DELETE = '$deleteFromPrimitiveList';
const ORDER = '$setElementOrder';

/**
 * Applies a strategic merge patch to a copy: a merge patch whose lists merge according to the kind's schema (null: no
 * list merges), with the directives $patch (replace, delete), $retainKeys, $setElementOrder/FIELD and
 * $deleteFromPrimitiveList/FIELD. The kind of the document stays, whatever the patch names. Throws StatusError 400 for a
 * patch, or a directive, of another form, and 500, as upstream, for what does not fit the document.
 */
export function applyStrategicPatch(
  document: JsonObject,
  patch: unknown,
  schema: FieldSchema | null,
): JsonObject {
  if (patch === null) return { ...document };
  if (!isObject(patch)) {
    throw badRequest(
      `json: cannot unmarshal ${jsonType(patch)} into Go value of type map[string]interface {}`,
    );
  }
  const result = mergeObject(document, patch, schema, '');
  for (const field of ['apiVersion', 'kind']) {
    const known = document[field];
    if (typeof result[field] === 'string' && known !== undefined) result[field] = known;
  }
  return result;
}

function mergeObject(
  document: JsonObject,
  patch: JsonObject,
  schema: FieldSchema | null,
  path: string,
): JsonObject {
  const directive = patch[DIRECTIVE];
  if (directive === 'replace') return withoutDirectives(patch);
  if (directive === 'delete') return {};
  if (directive !== undefined) throw unknownDirective(directive, patch);
  const result: JsonObject = retained(document, patch);
  for (const [field, value] of Object.entries(patch)) {
    if (value === undefined || field === RETAIN || field.startsWith(ORDER)) continue;
    if (field.startsWith(DELETE)) {
      const list = namedField(field, DELETE, 'primitive list');
      const current = ownMember(result, list);
      if (!Array.isArray(current) || !Array.isArray(value)) continue;
      checkSameTypes(current, value);
      const gone = new Set(value.map(valueText));
      setOwnMember(
        result,
        list,
        current.filter((item) => !gone.has(valueText(item))),
      );
      continue;
    }
    const merged = mergeField(
      ownMember(result, field),
      value,
      schema?.field(field) ?? null,
      `${path}.${field}`,
    );
    if (merged === undefined) delete result[field];
    else setOwnMember(result, field, merged);
  }
  for (const [field, order] of Object.entries(patch))
    if (order !== undefined && field.startsWith(ORDER))
      orderList({ document, patch, result, schema, path }, field, order);
  return result;
}

/** Returns a copy of the document with the fields that $retainKeys names, or all. Throws StatusError 400 if the patch has others. */
function retained(document: JsonObject, patch: JsonObject): JsonObject {
  const keys = patch[RETAIN];
  if (keys === undefined) return { ...document };
  if (!Array.isArray(keys)) throw badRequest('invalid patch format of retainKeys');
  const kept = new Set<Json>(keys);
  for (const [field, value] of Object.entries(patch)) {
    const isField =
      value !== null && field !== RETAIN && !field.startsWith(DELETE) && !field.startsWith(ORDER);
    if (isField && !kept.has(field)) throw badRequest('invalid patch format of retainKeys');
  }
  return Object.fromEntries(Object.entries(document).filter(([field]) => kept.has(field)));
}

/** Returns FIELD of "$directive/FIELD". Throws StatusError 400 without one. */
function namedField(text: string, directive: string, what: string): string {
  if (!text.startsWith(`${directive}/`)) throw badRequest(`invalid patch format of ${what}`);
  return text.slice(directive.length + 1);
}

/** Applies $setElementOrder to a list that has been merged. Throws StatusError 500 if it does not fit the list. */
function orderList(
  {
    document,
    patch,
    result,
    schema,
    path,
  }: {
    readonly document: JsonObject;
    readonly patch: JsonObject;
    readonly result: JsonObject;
    readonly schema: FieldSchema | null;
    readonly path: string;
  },
  directive: string,
  order: Json,
): void {
  if (!Array.isArray(order)) throw wrongArgument(order);
  const list = namedField(directive, ORDER, 'setElementOrder list');
  const [before, patched] = [ownMember(document, list), ownMember(patch, list)];
  if (before !== undefined && !Array.isArray(before)) throw wrongArgument(before);
  if (patched !== undefined && !Array.isArray(patched)) throw wrongArgument(patched);
  const field = schema?.field(list) ?? null;
  if (schema && field === null)
    throw notApplied(`unable to find api field in struct for the json field ${JSON.stringify(list)}`);
  if (field && field.kind !== 'list') throw notApplied('expected slice or array type, but got: struct');
  const key = field?.mergeKey ?? null;
  checkOrder(patched, order, key, `${path}.${list}`);
  const current = ownMember(result, list);
  if (!Array.isArray(current)) return;
  if (key !== null)
    for (const [at, item] of order.entries()) {
      if (!isObject(item)) throw notApplied(`value for key ${at} is not a map`);
      if (item[key] === undefined) throw noMergeKey(item, key);
    }
  setOwnMember(result, list, reorder(current, order, before ?? [], key));
}

function mergeField(
  current: Json | undefined,
  value: Json,
  schema: FieldSchema | null,
  path: string,
): Json | undefined {
  if (value === null) return undefined;
  if (isObject(value)) {
    if (schema?.patchStrategies.includes('replace') || !isObject(current)) return withoutDirectives(value);
    return mergeObject(current, value, schema, path);
  }
  if (!Array.isArray(value)) return value;
  if (!Array.isArray(current)) return withoutDirectives(value);
  if (!schema?.patchStrategies.includes('merge')) return value;
  checkSameTypes(current, value);
  // Without $setElementOrder the order of the patch counts: added items come first.
  if (schema.mergeKey !== null) {
    return reorder(
      mergeList(current, value, schema.mergeKey, schema.items, path),
      value,
      current,
      schema.mergeKey,
    );
  }
  const known = new Set(current.map(valueText));
  return [...current, ...value.filter((item) => !known.has(valueText(item)))];
}

/** Merges lists of objects: all deletions first, whatever their place. */
function mergeList(
  list: readonly Json[],
  patch: readonly Json[],
  key: string,
  schema: FieldSchema | null,
  path: string,
): Json[] {
  const changes: JsonObject[] = [];
  const deleted = new Set<string>();
  let replaces = false;
  for (const item of patch.filter(isObject)) {
    const directive = item[DIRECTIVE];
    if (directive === undefined) changes.push(item);
    else if (directive === 'delete') {
      if (item[key] === undefined) throw noMergeKey(item, key);
      // A list may have several: a Service's ports are merged by port, whatever their protocol.
      deleted.add(identityOf(item, key));
    } else if (directive === 'replace') replaces = true;
    else if (directive === 'merge') throw notApplied('merging lists cannot yet be specified in the patch');
    else throw unknownDirective(directive, item);
  }
  if (replaces) return changes;
  const result = list.filter((item) => !deleted.has(identityOf(item, key)));
  /** By identity: the first place of an item. */
  const places = new Map<string, number>();
  for (const [at, item] of result.entries()) {
    const id = identityOf(item, key);
    if (isObject(item) && item[key] !== undefined && !places.has(id)) places.set(id, at);
  }
  for (const item of changes) {
    if (item[key] === undefined) throw noMergeKey(item, key);
    const id = identityOf(item, key);
    const at = places.get(id);
    const old = at === undefined ? undefined : result[at];
    if (at !== undefined && isObject(old)) {
      result[at] = mergeObject(old, item, schema, path);
      // A null as the key removes the key.
      if (item[key] === null) places.delete(id);
    } else {
      if (item[key] !== null) places.set(id, result.length);
      result.push(withoutDirectives(item));
    }
  }
  // Items of the patch come in its order, new items before those that it does not name (as upstream).
  return reorder(result, patch, list, key);
}

/**
 * Sorts items by `order`; items not named there keep their place relative to the earlier items, and come after new ones
 * (as upstream's mergeSortedSlice).
 */
function reorder(
  list: readonly Json[],
  order: readonly Json[],
  original: readonly Json[],
  key: string | null,
): Json[] {
  const ranked = list.map((item) => ({ item, id: identityOf(item, key) }));
  const wanted = ranksOf(order, key);
  const earlier = ranksOf(original, key);
  const rank = (ranks: ReadonlyMap<string, number>, id: string) => ranks.get(id) ?? -1;
  const named = ranked
    .filter(({ id }) => wanted.has(id))
    .sort((a, b) => rank(wanted, a.id) - rank(wanted, b.id));
  const result: Json[] = [];
  let at = 0;
  for (const other of ranked) {
    if (wanted.has(other.id)) continue;
    for (let next = named[at]; next !== undefined; next = named[at]) {
      const known = rank(earlier, next.id);
      if (known >= 0 && known > rank(earlier, other.id)) break;
      result.push(next.item);
      at++;
    }
    result.push(other.item);
  }
  for (const { item } of named.slice(at)) result.push(item);
  return result;
}

/** Returns the place of the first item with each identity. */
function ranksOf(items: readonly Json[], key: string | null): Map<string, number> {
  const ranks = new Map<string, number>();
  for (const [at, item] of items.entries()) {
    const id = identityOf(item, key);
    if (!ranks.has(id)) ranks.set(id, at);
  }
  return ranks;
}

/** Refuses a list of a patch whose items are not in the order, or not among the items, that the patch states. */
function checkOrder(items: Json | undefined, order: readonly Json[], key: string | null, path: string): void {
  if (!Array.isArray(items)) return;
  const ids = order.map((item) => identityOf(item, key));
  let next = 0;
  for (const item of items) {
    if (isObject(item) && (item['$patch'] === 'delete' || item['$patch'] === 'replace')) continue;
    const id = identityOf(item, key);
    while (next < ids.length && ids[next] !== id) next++;
    if (next === ids.length)
      throw notApplied(`The order in patch list ${path} doesn't match $setElementOrder list`);
    next++;
  }
}

/** Returns what makes an item of a list the same one as another: its merge key, or its value without one, as a text. */
const identityOf = (item: Json, key: string | null): string =>
  valueText(key !== null && isObject(item) ? item[key] : item);

const noMergeKey = (item: JsonObject, key: string) =>
  notApplied(`map: ${goText(item)} does not contain declared merge key: ${key}`);

function unknownDirective(directive: Json, patch: JsonObject) {
  const text = typeof directive === 'string' ? directive : `%!s(${goText(directive)})`;
  return notApplied(`unknown patch type: ${text} in map: ${goText(patch)}`);
}

/** Returns a value of a patch as it is in a document that had none: without directives, items to delete, and nulls. */
function withoutDirectives<T extends JsonObject | Json[]>(value: T): T {
  if (Array.isArray(value))
    return value
      .filter((item) => !(isObject(item) && (item[DIRECTIVE] === 'delete' || item[DIRECTIVE] === 'replace')))
      .map((item) => (isObject(item) ? withoutDirectives(item) : item)) as T;
  const kept = Object.entries(value).filter(
    ([field, one]) =>
      one !== null &&
      field !== DIRECTIVE &&
      field !== RETAIN &&
      !field.startsWith(`${DELETE}/`) &&
      !field.startsWith(`${ORDER}/`),
  );
  return Object.fromEntries(
    kept.map(([field, one]) => [field, isObject(one) || Array.isArray(one) ? withoutDirectives(one) : one]),
  ) as T;
}
