import { equal, isObject, type Json, type JsonObject } from './object.ts';
import { badRequest } from './status-error.ts';

/**
 * Which field identifies the items of a list that strategic merge patches merge: the `patchMergeKey` of Kubernetes's
 * types. `null`: a list of plain values that are united. Lists that are not here are replaced whole.
 */
const MERGE_KEYS: Readonly<Record<string, string | null>> = {
  containers: 'name',
  initContainers: 'name',
  ephemeralContainers: 'name',
  volumes: 'name',
  volumeMounts: 'mountPath',
  volumeDevices: 'devicePath',
  env: 'name',
  imagePullSecrets: 'name',
  secrets: 'name',
  hostAliases: 'ip',
  topologySpreadConstraints: 'topologyKey',
  resourceClaims: 'name',
  resourceClaimStatuses: 'name',
  schedulingGates: 'name',
  conditions: 'type',
  ownerReferences: 'uid',
  podIPs: 'ip',
  hostIPs: 'ip',
  finalizers: null,
  podCIDRs: null,
};

/** Lists whose key depends on the object that holds them. */
function mergeKeyOf(field: string, parents: readonly string[]): string | null | undefined {
  const parent = parents.at(-1);
  if (field === 'ports')
    return parent === 'containers' || parent === 'initContainers' ? 'containerPort' : 'port';
  if (field === 'addresses') return parent === 'status' ? 'type' : undefined;
  // In a LabelSelector, a Job's podFailurePolicy and the like, lists of these names are replaced.
  if (field === 'conditions' && parent !== 'status') return undefined;
  if (field === 'finalizers' && parent !== 'metadata') return undefined;
  return Object.hasOwn(MERGE_KEYS, field) ? MERGE_KEYS[field] : undefined;
}

/**
 * Applies a strategic merge patch to a copy: merge patches in which lists of the types above are merged by key, with
 * the directives $patch (replace, delete, merge), $retainKeys, $setElementOrder/FIELD and $deleteFromPrimitiveList/FIELD.
 * Throws StatusError 400 for a malformed patch.
 */
export function applyStrategicPatch(document: JsonObject, patch: unknown): JsonObject {
  if (!isObject(patch)) throw badRequest('strategic merge patch must be an object');
  return mergeObject(document, patch, []);
}

function mergeObject(document: JsonObject, patch: JsonObject, parents: readonly string[]): JsonObject {
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
      const current = result[list];
      if (Array.isArray(current))
        result[list] = current.filter((item) => !gone.some((other) => equal(item, other)));
    } else if (!field.startsWith('$setElementOrder/')) {
      result[field] = mergeField(result[field], value, field, parents);
      if (result[field] === undefined) delete result[field];
    }
  }
  for (const [field, value] of Object.entries(patch)) {
    if (!field.startsWith('$setElementOrder/') || !Array.isArray(value)) continue;
    const list = field.slice('$setElementOrder/'.length);
    const current = result[list];
    if (Array.isArray(current)) result[list] = reorder(current, value, mergeKeyOf(list, parents));
  }
  return result;
}

function mergeField(
  current: Json | undefined,
  value: Json,
  field: string,
  parents: readonly string[],
): Json | undefined {
  if (value === null) return undefined;
  if (isObject(value)) return mergeObject(isObject(current) ? current : {}, value, [...parents, field]);
  if (!Array.isArray(value)) return value;
  const key = mergeKeyOf(field, parents);
  if (key === undefined) return value;
  const list = Array.isArray(current) ? current : [];
  if (key === null) return [...list, ...value.filter((item) => !list.some((other) => equal(item, other)))];
  return mergeList(list, value, key, [...parents, field]);
}

function mergeList(
  list: readonly Json[],
  patch: readonly Json[],
  key: string,
  parents: readonly string[],
): Json[] {
  if (patch.some((item) => isObject(item) && item['$patch'] === 'replace')) {
    return patch.filter((item) => !(isObject(item) && item['$patch'] === 'replace' && !(key in item)));
  }
  const result = [...list];
  for (const item of patch) {
    if (!isObject(item)) throw badRequest(`${parents.join('.')}: a list merged by ${key} holds objects only`);
    const id = item[key];
    if (id === undefined)
      throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const at = result.findIndex((other) => isObject(other) && equal(other[key], id));
    if (item['$patch'] === 'delete') {
      if (at >= 0) result.splice(at, 1);
      continue;
    }
    const old = result[at];
    const merged = mergeObject(isObject(old) ? old : {}, item, parents);
    if (at >= 0) result[at] = merged;
    else result.push(merged);
  }
  return result;
}

/** Items named in `order` come in that order; others keep their place relative to what stands before them. */
function reorder(list: readonly Json[], order: readonly Json[], key: string | null | undefined): Json[] {
  const identity = (item: Json) => (key && isObject(item) ? item[key] : item);
  const rank = (item: Json) => order.findIndex((other) => equal(identity(other), identity(item)));
  const named = list.filter((item) => rank(item) >= 0).sort((a, b) => rank(a) - rank(b));
  const result: Json[] = [];
  for (const item of list) result.push(rank(item) >= 0 ? (named.shift() ?? item) : item);
  return result;
}

function stripDirectives(patch: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(patch)
      .filter(([field, value]) => !field.startsWith('$') && value !== null)
      .map(([field, value]) => [field, isObject(value) ? stripDirectives(value) : value]),
  );
}
