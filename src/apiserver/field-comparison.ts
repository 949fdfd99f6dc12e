import { ownMember } from '../lib/own-member.ts';
import { type FieldPath, keyElement, type ListIdentity, listMerge } from './field-set.ts';
import { equal, isObject, type Json, type JsonObject } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';

/** The fields in which two forms of an object differ (structured-merge-diff's Comparison). */
export interface Comparison {
  readonly added: FieldPath[];
  readonly modified: FieldPath[];
  readonly removed: FieldPath[];
}

/**
 * Compares two forms of an object field by field; an added or removed map or list counts as a field in addition to its
 * contents.
 */
export function compareFields(
  before: JsonObject,
  after: JsonObject,
  schema: FieldSchema | null,
  ignored: (path: FieldPath) => boolean,
): Comparison {
  const result: Comparison = { added: [], modified: [], removed: [] };
  compareMaps(before, after, schema, [], result, ignored);
  return result;
}

function compareMaps(
  before: JsonObject,
  after: JsonObject,
  schema: FieldSchema | null,
  path: FieldPath,
  result: Comparison,
  ignored: (path: FieldPath) => boolean,
): void {
  for (const field of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const place = [...path, `f:${field}`];
    if (place.length <= 2 && ignored(place)) continue;
    const [left, right] = [ownMember(before, field), ownMember(after, field)];
    compare(left, right, schema?.field(field) ?? null, place, result, ignored);
  }
}

function compare(
  before: Json | undefined,
  after: Json | undefined,
  schema: FieldSchema | null,
  path: FieldPath,
  result: Comparison,
  ignored: (path: FieldPath) => boolean,
): void {
  if (before === undefined && after === undefined) return;
  if (before === undefined) result.added.push(path);
  else if (after === undefined) result.removed.push(path);
  const some = after ?? before ?? null;
  if (isObject(some) && !schema?.atomic) {
    const [left, right] = [isObject(before) ? before : {}, isObject(after) ? after : {}];
    compareMaps(left, right, schema, path, result, ignored);
    return;
  }
  const keys = listMerge(schema);
  if (keys !== null && (Array.isArray(before) || Array.isArray(after))) {
    const [left, right] = [before, after].map((list) => byIdentity(Array.isArray(list) ? list : [], keys));
    for (const id of new Set([...(left?.keys() ?? []), ...(right?.keys() ?? [])])) {
      compare(
        left?.get(id),
        right?.get(id),
        keys === 'set' ? null : (schema?.items ?? null),
        [...path, id],
        result,
        ignored,
      );
    }
    return;
  }
  if (before !== undefined && after !== undefined && !equal(before, after)) result.modified.push(path);
}

function byIdentity(list: readonly Json[], keys: ListIdentity): Map<string, Json> {
  return new Map(
    list.flatMap((item): [string, Json][] => {
      if (keys === 'set') return [[`v:${JSON.stringify(item)}`, item]];
      return isObject(item) ? [[keyElement(item, keys), item]] : [];
    }),
  );
}
