import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { equal, isObject, type Json, type JsonObject, jsonType } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';
import { badRequest, StatusError } from './status-error.ts';

/**
 * Applies a strategic merge patch to a copy: a merge patch whose lists merge according to the kind's schema (null: no
 * list merges), with the directives $patch (replace, delete, merge), $retainKeys, $setElementOrder/FIELD and
 * $deleteFromPrimitiveList/FIELD. Throws StatusError 400
 * for a malformed patch, and 500, as upstream, for a list that is not in the order that the patch states.
 */
export function applyStrategicPatch(
  document: JsonObject,
  patch: unknown,
  schema: FieldSchema | null,
): JsonObject {
  if (!isObject(patch)) {
    throw badRequest(
      `json: cannot unmarshal ${jsonType(patch)} into Go value of type map[string]interface {}`,
    );
  }
  return mergeObject(document, patch, schema, '');
}

function mergeObject(
  document: JsonObject,
  patch: JsonObject,
  schema: FieldSchema | null,
  path: string,
): JsonObject {
  const directive = patch['$patch'];
  if (directive === 'replace') return stripDirectives(patch);
  if (directive === 'delete') return {};
  if (directive !== undefined && directive !== 'merge') {
    throw badRequest(`unknown patch directive ${JSON.stringify(directive)}`);
  }
  const result: JsonObject = { ...document };
  const retain = patch['$retainKeys'];
  if (Array.isArray(retain)) {
    for (const field of Object.keys(result)) if (!retain.includes(field)) delete result[field];
  }
  for (const [field, value] of Object.entries(patch)) {
    if (value === undefined || field === '$patch' || field === '$retainKeys') continue;
    if (field.startsWith('$deleteFromPrimitiveList/')) {
      const list = field.slice('$deleteFromPrimitiveList/'.length);
      const gone = Array.isArray(value) ? value : [];
      const current = ownMember(result, list);
      if (Array.isArray(current))
        setOwnMember(
          result,
          list,
          current.filter((item) => !gone.some((other) => equal(item, other))),
        );
    } else if (!field.startsWith('$setElementOrder/')) {
      const current = ownMember(result, field);
      const merged = mergeField(current, value, schema?.field(field) ?? null, `${path}.${field}`);
      if (merged === undefined) delete result[field];
      else setOwnMember(result, field, merged);
    }
  }
  for (const [field, value] of Object.entries(patch)) {
    if (!field.startsWith('$setElementOrder/')) continue;
    const list = field.slice('$setElementOrder/'.length);
    if (!Array.isArray(value)) throw wrongOrder(`${path}.${field} must be a list`);
    checkOrder(patch[list], value, schema?.field(list)?.mergeKey ?? null, `${path}.${list}`);
    const current = ownMember(result, list);
    const before = ownMember(document, list);
    const original = Array.isArray(before) ? before : [];
    if (Array.isArray(current)) {
      const key = schema?.field(list)?.mergeKey ?? null;
      setOwnMember(result, list, reorder(current, value, original, key));
    }
  }
  return result;
}

function mergeField(
  current: Json | undefined,
  value: Json,
  schema: FieldSchema | null,
  path: string,
): Json | undefined {
  if (value === null) return undefined;
  if (isObject(value)) {
    if (schema?.patchStrategies.includes('replace')) return stripDirectives(value);
    return mergeObject(isObject(current) ? current : {}, value, schema, path);
  }
  if (!Array.isArray(value) || !schema?.patchStrategies.includes('merge')) return value;
  const list = Array.isArray(current) ? current : [];
  // Without $setElementOrder the order of the patch counts: added items come first.
  if (schema.mergeKey !== null) {
    return reorder(mergeList(list, value, schema.mergeKey, schema.items, path), value, list, schema.mergeKey);
  }
  return [...list, ...value.filter((item) => !list.some((other) => equal(item, other)))];
}

function mergeList(
  list: readonly Json[],
  patch: readonly Json[],
  key: string,
  schema: FieldSchema | null,
  path: string,
): Json[] {
  if (patch.some((item) => isObject(item) && item['$patch'] === 'replace')) {
    return patch.filter((item) => !(isObject(item) && item['$patch'] === 'replace' && !(key in item)));
  }
  let result = [...list];
  for (const item of patch) {
    if (!isObject(item)) throw badRequest(`${path}: a list merged by ${key} must contain only objects`);
    const id = item[key];
    if (id === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const isSame = (other: Json) => isObject(other) && equal(other[key], id);
    if (item['$patch'] === 'delete') {
      // A list may have several: a Service's ports are merged by port, whatever their protocol.
      result = result.filter((other) => !isSame(other));
      continue;
    }
    const at = result.findIndex(isSame);
    const old = result[at];
    const merged = mergeObject(isObject(old) ? old : {}, item, schema, path);
    if (at >= 0) result[at] = merged;
    else result.push(merged);
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
  const rankIn = (items: readonly Json[], item: Json) =>
    items.findIndex((other) => isSameItem(other, item, key));
  const named = list
    .filter((item) => rankIn(order, item) >= 0)
    .sort((a, b) => rankIn(order, a) - rankIn(order, b));
  const result: Json[] = [];
  for (const other of list.filter((item) => rankIn(order, item) < 0)) {
    for (let next = named[0]; next !== undefined; next = named[0]) {
      const rank = rankIn(original, next);
      if (rank >= 0 && rank > rankIn(original, other)) break;
      result.push(next);
      named.shift();
    }
    result.push(other);
  }
  return [...result, ...named];
}

/** Refuses a list of a patch whose items are not in the order, or not among the items, that the patch states. */
function checkOrder(items: Json | undefined, order: readonly Json[], key: string | null, path: string): void {
  if (!Array.isArray(items)) return;
  let next = 0;
  for (const item of items) {
    if (isObject(item) && (item['$patch'] === 'delete' || item['$patch'] === 'replace')) continue;
    while (next < order.length && !isSameItem(order[next] ?? null, item, key)) next++;
    if (next === order.length)
      throw wrongOrder(`The order in patch list ${path} doesn't match $setElementOrder list`);
    next++;
  }
}

/** Reports whether two items of a list are the same one: by the merge key, or by their values without one. */
function isSameItem(a: Json, b: Json, key: string | null): boolean {
  const identity = (item: Json) => (key !== null && isObject(item) ? item[key] : item);
  return equal(identity(a), identity(b));
}

/** Returns the error of a stated order that cannot be, with the status that upstream gives it. */
const wrongOrder = (message: string) => new StatusError(500, '', message);

function stripDirectives(patch: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(patch)
      .filter(([field, value]) => !field.startsWith('$') && value !== null)
      .map(([field, value]) => [field, isObject(value) ? stripDirectives(value) : value]),
  );
}
