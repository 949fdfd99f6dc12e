import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { isObject, type Json, type JsonObject, jsonType, valueText } from './object.ts';
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
    const retained = new Set<Json>(retain);
    for (const field of Object.keys(result)) if (!retained.has(field)) delete result[field];
  }
  for (const [field, value] of Object.entries(patch)) {
    if (value === undefined || field === '$patch' || field === '$retainKeys') continue;
    if (field.startsWith('$deleteFromPrimitiveList/')) {
      const list = field.slice('$deleteFromPrimitiveList/'.length);
      const gone = new Set((Array.isArray(value) ? value : []).map(valueText));
      const current = ownMember(result, list);
      if (Array.isArray(current))
        setOwnMember(
          result,
          list,
          current.filter((item) => !gone.has(valueText(item))),
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
  const known = new Set(list.map(valueText));
  return [...list, ...value.filter((item) => !known.has(valueText(item)))];
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
  const result = [...list];
  /** The places of items that a delete directive has removed. */
  const gone = new Set<number>();
  /** By identity: the places of the items, in order. */
  const places = new Map<string, Set<number>>();
  const put = (item: Json, at: number) => {
    if (!isObject(item) || item[key] === undefined) return;
    const id = identityOf(item, key);
    const same = places.get(id);
    if (same) same.add(at);
    else places.set(id, new Set([at]));
  };
  list.forEach(put);
  for (const item of patch) {
    if (!isObject(item)) throw badRequest(`${path}: a list merged by ${key} must contain only objects`);
    if (item[key] === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const id = identityOf(item, key);
    const same = places.get(id);
    if (item['$patch'] === 'delete') {
      // A list may have several: a Service's ports are merged by port, whatever their protocol.
      for (const at of same ?? []) gone.add(at);
      places.delete(id);
      continue;
    }
    const [at = result.length] = same ?? [];
    const old = result[at];
    const merged = mergeObject(isObject(old) ? old : {}, item, schema, path);
    result[at] = merged;
    // A null as the key removes the key.
    if (item[key] === null) same?.delete(at);
    else put(merged, at);
  }
  const left = result.filter((_, at) => !gone.has(at));
  // Items of the patch come in its order, new items before those that it does not name (as upstream).
  return reorder(left, patch, list, key);
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
      throw wrongOrder(`The order in patch list ${path} doesn't match $setElementOrder list`);
    next++;
  }
}

/** Returns what makes an item of a list the same one as another: its merge key, or its value without one, as a text. */
const identityOf = (item: Json, key: string | null): string =>
  valueText(key !== null && isObject(item) ? item[key] : item);

/** Returns the error of a stated order that cannot be, with the status that upstream gives it. */
const wrongOrder = (message: string) => new StatusError(500, '', message);

function stripDirectives(patch: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(patch)
      .filter(([field, value]) => !field.startsWith('$') && value !== null)
      .map(([field, value]) => [field, isObject(value) ? stripDirectives(value) : value]),
  );
}
